package config

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// MCP configures the Model Context Protocol, over HTTP and stdio.
type MCP struct {
	// Profile is the name of the set of tools: native, or the profile of a
	// server that Glovebox replaces.
	Profile string `yaml:"profile"`
	// Tools are the only tools to offer; empty is all.
	Tools []string `yaml:"tools"`
	// ReadOnly hides all tools that change state.
	ReadOnly bool `yaml:"read_only"`
	// ToolPrefix is put in front of the names of all tools; empty is none.
	ToolPrefix string `yaml:"tool_prefix"`
	// Approve are the requests above the operator's defaults for which a tool asks a
	// person at the client: [ApproveNetwork], [ApproveLimits].
	Approve []string `yaml:"approve"`
	// AllowDirs are directories of this machine from and to which tools over
	// stdio may copy.
	AllowDirs []string `yaml:"allow_dirs"`
	// AllowToolFiles lets those tools write files that programs on this machine
	// execute or obey, such as .git.
	AllowToolFiles bool `yaml:"allow_tool_files"`
}

// The values of MCP.Approve.
const (
	ApproveNetwork = "network"
	ApproveLimits  = "limits"
)

// CheckApprove returns an error of kind Invalid, about field, if what has an unknown
// value.
func CheckApprove(field string, what []string) error {
	for _, w := range what {
		if w != ApproveNetwork && w != ApproveLimits {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: %.80q needs no approval", field, w),
				"write %s, %s or both", ApproveNetwork, ApproveLimits)
		}
	}
	return nil
}

// Server configures glovebox serve.
type Server struct {
	// Listen is the address to listen on, as host:port.
	Listen string `yaml:"listen"`
	// E2BListen is an additional address for E2B's protocol, which is also at
	// /e2b of Listen; empty is none. E2BDomain is a domain: host names below it,
	// such as 49983-sbx….DOMAIN, lead to sandboxes there.
	E2BListen string `yaml:"e2b_listen"`
	E2BDomain string `yaml:"e2b_domain"`
	// E2BPublicPorts serves ports of sandboxes that E2B's protocol makes without a
	// token, unless the creator of a sandbox does not want that.
	E2BPublicPorts bool `yaml:"e2b_public_ports"`
	// MetricsListen is the address for metrics. If it is empty, they are at
	// /metrics of Listen.
	MetricsListen string `yaml:"metrics_listen"`
	// Shard is the number, from 0 to 1023, of this server among several behind one
	// address; empty is none.
	Shard string `yaml:"shard"`
	// PublicURL is the URL at which clients reach the server, if it differs from
	// Listen: for example, a proxy's.
	PublicURL string `yaml:"public_url"`
	// PreviewDomain is the parent domain for ports of sandboxes, which get host
	// names like PORT-SANDBOX.DOMAIN. Empty is localhost if clients reach the
	// server by a loopback address, and none otherwise; "none" is none.
	PreviewDomain string `yaml:"preview_domain"`
	// TLSCert and TLSKey are PEM files for HTTPS. Set both or neither.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`
	// AllowHosts and AllowOrigins are accepted values of the Host and Origin
	// headers, in addition to the listening address.
	AllowHosts   []string `yaml:"allow_hosts"`
	AllowOrigins []string `yaml:"allow_origins"`
	// TrustedProxies are the addresses of the operator's own proxies, as addresses or
	// ranges. The address of their clients comes from the header X-Forwarded-For.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// RateLimit is the maximum number of requests per second of one principal.
	// Bursts may have twice as many.
	RateLimit float64 `yaml:"rate_limit"`
	// BodyLimit is the maximum size of a request's body, in bytes.
	BodyLimit Bytes `yaml:"body_limit"`
	// Sessions is the maximum number of concurrent MCP sessions.
	Sessions int  `yaml:"sessions"`
	OIDC     OIDC `yaml:"oidc"`
	// Dashboard serves pages for people at the root of the server.
	Dashboard bool `yaml:"dashboard"`
	// SignIn makes the server an OAuth authorization server for MCP clients. People
	// sign in with a Glovebox token.
	SignIn SignIn `yaml:"sign_in"`
	// Token is the bearer token of clients. Only the environment sets it, so
	// that configuration files contain no token. If it is empty, the first start
	// makes a token.
	Token string `yaml:"-"`
}

// SignIn configures the built-in authorization server.
type SignIn struct {
	Enabled bool `yaml:"enabled"`
	// Documents accepts clients that are identified by the URL of a metadata
	// document. The server fetches the documents from the internet.
	Documents bool `yaml:"documents"`
}

// OIDC configures an OpenID Connect issuer whose access tokens are accepted.
type OIDC struct {
	// Issuer is the issuer's URL; empty is none.
	Issuer string `yaml:"issuer"`
	// Audience is the audience of the issuer's tokens for this server.
	Audience string     `yaml:"audience"`
	Scopes   OIDCScopes `yaml:"scopes"`
	Groups   OIDCGroups `yaml:"groups"`
	Client   OIDCClient `yaml:"client"`
}

// OIDCClient lets people sign in to the dashboard at the issuer, where this server is a
// client.
type OIDCClient struct {
	// ID is the client's identifier; empty is no client.
	ID string `yaml:"id"`
	// Scopes are the issuer's names of the scopes to ask for, beside openid. Empty is
	// those of run and files.
	Scopes []string `yaml:"scopes"`
	// Parameters are added to the address at which people sign in.
	Parameters map[string]string `yaml:"parameters"`
	// Secret is the client's secret. Only the environment sets it.
	Secret string `yaml:"-"`
}

// reserved are the parameters of a sign-in that the server sets itself.
var reserved = []string{"client_id", "client_secret", "code_challenge", "code_challenge_method", "nonce", "redirect_uri", "response_mode", "response_type", "scope", "state"}

// validateClient checks the client of the issuer. People come back from the issuer by
// the public URL.
func (s *Server) validateClient() error {
	const field, secret = "server.oidc.client.id", "GLOVEBOX_OIDC_CLIENT_SECRET"
	c := s.OIDC.Client
	if c.ID == "" {
		switch {
		case c.Secret != "":
			return invalid(secret, "is set, but "+field+" is not", "set both or neither")
		case len(c.Scopes)+len(c.Parameters) > 0:
			return invalid(field, "is not set, but other fields of server.oidc.client are", "set it to the ID of this server at the issuer")
		}
		return nil
	}
	u, err := url.Parse(s.PublicURL)
	switch {
	case s.OIDC.Issuer == "":
		return invalid(field, "is set, but server.oidc.issuer is not", "set both or neither")
	case !s.Dashboard:
		return invalid(field, "is set, but server.dashboard is false, so there is nothing to sign in to", "set server.dashboard, or leave the client out")
	case c.Secret == "":
		return invalid(secret, "is not set, but "+field+" is", "set it, or GLOVEBOX_OIDC_CLIENT_SECRET_FILE, to the client's secret")
	case s.PublicURL == "" || err != nil:
		return invalid(field, "is set, but server.public_url is not, so the issuer cannot send people back", "set server.public_url to the address that people open")
	case u.Scheme != "https" && !sandbox.IsLoopback(u.Hostname()):
		return invalid(field, "is set, but server.public_url begins with http://, so sessions would travel unencrypted", "set server.public_url to an https:// URL")
	case strings.Trim(u.Path, "/") != "":
		return invalid(field, "is set, but server.public_url has a path, and the dashboard is at the root", "set server.public_url to a URL without a path")
	}
	for _, scope := range c.Scopes {
		if scope == "" || strings.ContainsAny(scope, " \t\r\n\"\\") {
			return invalid("server.oidc.client.scopes", fmt.Sprintf("%q is not the name of a scope", scope), "use the issuer's names")
		}
	}
	for name := range c.Parameters {
		if name == "" || slices.Contains(reserved, name) {
			return invalid("server.oidc.client.parameters."+name, "is not a parameter that can be set", "leave it out")
		}
	}
	return nil
}

// OIDCGroups put the subjects of an issuer's tokens into groups.
type OIDCGroups struct {
	// Claim is the claim with the names of groups; empty is none.
	Claim string `yaml:"claim"`
	// Map has the name of our group for each of the issuer's names.
	Map map[string]string `yaml:"map"`
}

// maxGroupName bounds the name of a group, in bytes.
const maxGroupName = 300

func (g OIDCGroups) check() error {
	if (g.Claim == "") != (len(g.Map) == 0) {
		return invalid("server.oidc.groups", "has a claim without a map, or a map without a claim", "set both or none")
	}
	for from, to := range g.Map {
		if to == "" || len(to) > maxGroupName || strings.ContainsFunc(to, func(r rune) bool { return !unicode.IsPrint(r) || r == '*' }) {
			return invalid("server.oidc.groups.map."+from, fmt.Sprintf("%q is not the name of a group", to), "use 1 to 300 printable characters, and no *")
		}
	}
	return nil
}

// OIDCScopes are the issuer's names of Glovebox's scopes.
type OIDCScopes struct {
	Run   string `yaml:"run"`
	Files string `yaml:"files"`
	Admin string `yaml:"admin"`
	// Read and Operate are empty by default: no token of the issuer has these scopes.
	Read    string `yaml:"read"`
	Operate string `yaml:"operate"`
}

func defaultServer() Server {
	return Server{
		Listen:    "127.0.0.1:8080",
		RateLimit: 500,
		BodyLimit: 8 << 20,
		Sessions:  1000,
		Dashboard: true,
		OIDC: OIDC{
			Scopes: OIDCScopes{Run: "run", Files: "files", Admin: "admin"},
			Groups: OIDCGroups{Map: map[string]string{}},
			Client: OIDCClient{Scopes: []string{}, Parameters: map[string]string{}},
		},
	}
}

const (
	// minToken is the minimum length of a token. A shorter token could be
	// guessed by sending HTTP requests.
	minToken = 16
	// minBody holds the arguments of any tool, except a file's content.
	minBody = 64 << 10
)

// maxTokenFile is the maximum size of a token's file, in bytes. A longer file is
// probably not a token's.
const maxTokenFile = 4 << 10

// readToken reads the token from a file. The user's other programs can see the
// environment, so some operators prefer a file.
func (s *Server) readToken(path string) error {
	return secretFromFile(&s.Token, "GLOVEBOX_TOKEN", path)
}

// readClientSecret reads the secret of the issuer's client from a file.
func (s *Server) readClientSecret(path string) error {
	return secretFromFile(&s.OIDC.Client.Secret, "GLOVEBOX_OIDC_CLIENT_SECRET", path)
}

// secretFromFile reads a secret from a file, unless the variable of that name set it.
func secretFromFile(to *string, variable, path string) error {
	if *to != "" {
		return errors.New(variable + " is also set; unset one of them")
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(text))
	switch {
	case len(text) > maxTokenFile:
		return fmt.Errorf("%s has more than %d bytes", path, maxTokenFile)
	case token == "":
		return fmt.Errorf("%s is empty", path)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%s has more than one token", path)
	}
	*to = token
	return nil
}

// ShardID returns the shard of a valid configuration.
func (s *Server) ShardID() sandbox.Shard {
	shard, _ := sandbox.ParseShard(s.Shard) // validate has checked it
	return shard
}

func (s *Server) validate() error {
	if _, err := sandbox.ParseShard(s.Shard); err != nil {
		return invalid("server.shard", err.Error(), "give each server behind one address another number; see docs/guides/scale.md")
	}
	if _, _, err := net.SplitHostPort(s.Listen); err != nil {
		return invalid("server.listen", fmt.Sprintf("%q is not host:port", s.Listen), "write it like 127.0.0.1:8080")
	}
	if _, _, err := net.SplitHostPort(s.E2BListen); err != nil && s.E2BListen != "" {
		return invalid("server.e2b_listen", fmt.Sprintf("%q is not host:port", s.E2BListen), "write it like 127.0.0.1:3000")
	}
	if _, _, err := net.SplitHostPort(s.MetricsListen); err != nil && s.MetricsListen != "" {
		return invalid("server.metrics_listen", fmt.Sprintf("%q is not host:port", s.MetricsListen), "write it like 127.0.0.1:9090")
	}
	if strings.ContainsAny(s.E2BDomain, "/:*@ ") || strings.HasPrefix(s.E2BDomain, ".") {
		return invalid("server.e2b_domain", fmt.Sprintf("%q is not a domain", s.E2BDomain), "write it like sandboxes.example.com")
	}
	if strings.ContainsAny(s.PreviewDomain, "/:*@ ") || strings.HasPrefix(s.PreviewDomain, ".") {
		return invalid("server.preview_domain", fmt.Sprintf("%q is not a domain", s.PreviewDomain), "write it like preview.example.com, or write none")
	}
	if s.PublicURL != "" {
		u, err := url.Parse(s.PublicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return invalid("server.public_url", fmt.Sprintf("%q is not the URL of a server", s.PublicURL),
				"write it like https://glovebox.example.com")
		}
	}
	if _, err := s.Proxies(); err != nil {
		return err
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return invalid("server.tls_cert", "and server.tls_key must both be set, but only one is",
			"set the files of both the certificate and its key, or neither")
	}
	if !(s.RateLimit > 0) {
		return invalid("server.rate_limit", fmt.Sprintf("%v is not a number of requests per second", s.RateLimit), "set it above 0")
	}
	if s.BodyLimit < minBody {
		return invalid("server.body_limit", fmt.Sprintf("%v is below the minimum, %v", s.BodyLimit, Bytes(minBody)), "write it like 8MiB")
	}
	if s.Sessions < 1 {
		return invalid("server.sessions", fmt.Sprintf("%d is not a number of sessions", s.Sessions), "set it to 1 or more")
	}
	if t := s.Token; t != "" && len(t) < minToken {
		return invalid("GLOVEBOX_TOKEN", fmt.Sprintf("has %d characters, but needs at least %d", len(t), minToken),
			"unset it, so that Glovebox makes a token, or make one with: openssl rand -hex 32")
	}
	if err := s.OIDC.validate(); err != nil {
		return err
	}
	if err := s.validateClient(); err != nil {
		return err
	}
	return s.validateSignIn()
}

// Proxies returns TrustedProxies as ranges of addresses. The error wraps
// [sandbox.Invalid].
func (s *Server) Proxies() ([]netip.Prefix, error) {
	const field = "server.trusted_proxies"
	var all []netip.Prefix
	for _, text := range s.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if a, aErr := netip.ParseAddr(text); aErr == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch {
		case err != nil || p.Addr().Is4In6():
			return nil, invalid(field, fmt.Sprintf("%q is not a range of addresses", text), "write it like 10.0.0.0/8, 192.0.2.1 or fd00::/8")
		case p.Bits() == 0:
			return nil, invalid(field, fmt.Sprintf("%q is every address, so every client could claim any address", text), "name the addresses of the proxies")
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// validateSignIn requires an encrypted way to the sign-in page: people type tokens
// there.
func (s *Server) validateSignIn() error {
	const field = "server.sign_in.enabled"
	switch {
	case !s.SignIn.Enabled && s.SignIn.Documents:
		return invalid("server.sign_in.documents", "is set, but server.sign_in.enabled is not", "set both or neither")
	case !s.SignIn.Enabled:
		return nil
	case s.OIDC.Issuer != "":
		return invalid(field, "and server.oidc.issuer are both set", "set one of them: clients sign in at the issuer, or here")
	}
	if s.PublicURL != "" {
		u, err := url.Parse(s.PublicURL)
		if err == nil && u.Scheme == "https" {
			return nil
		}
		if err != nil || !sandbox.IsLoopback(u.Hostname()) {
			return invalid(field, "is set, but server.public_url begins with http://, so tokens would travel unencrypted",
				"serve HTTPS, with a proxy or server.tls_cert, and set server.public_url to the https:// URL")
		}
	}
	if host, _, err := net.SplitHostPort(s.Listen); s.TLSCert == "" && (err != nil || !sandbox.IsLoopback(host)) {
		return invalid(field, fmt.Sprintf("is set, but the server listens at %s without HTTPS, so tokens would travel unencrypted", s.Listen),
			"set server.tls_cert and server.tls_key, or server.public_url to the https:// URL of a proxy")
	}
	return nil
}

func (o *OIDC) validate() error {
	if o.Issuer == "" {
		if o.Audience != "" {
			return invalid("server.oidc.audience", "is set, but server.oidc.issuer is not", "set both or neither")
		}
		return nil
	}
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && !(u.Scheme == "http" && sandbox.IsLoopback(u.Hostname())) {
		return invalid("server.oidc.issuer", fmt.Sprintf("%q is not the URL of an issuer", o.Issuer),
			"use exactly the iss of its tokens, with https://; http:// is allowed only for this machine")
	}
	if o.Audience == "" {
		return invalid("server.oidc.audience", "is not set, so every token of the issuer would be accepted",
			"set it to the aud that the issuer gives tokens for this server, often the public address")
	}
	for name, scope := range map[string]string{"run": o.Scopes.Run, "files": o.Scopes.Files, "admin": o.Scopes.Admin} {
		if scope == "" || strings.ContainsAny(scope, " \t\r\n\"\\") {
			return invalid("server.oidc.scopes."+name, fmt.Sprintf("%q is not the name of a scope", scope),
				"set it to the issuer's name of the scope")
		}
	}
	for name, scope := range map[string]string{"read": o.Scopes.Read, "operate": o.Scopes.Operate} {
		if strings.ContainsAny(scope, " \t\r\n\"\\") {
			return invalid("server.oidc.scopes."+name, fmt.Sprintf("%q is not the name of a scope", scope),
				"set it to the issuer's name of the scope, or leave it empty")
		}
	}
	return o.Groups.check()
}

// SetScope sets the issuer's name of one scope, from a text like
// run=sandbox.run.
func (o *OIDC) SetScope(text string) error {
	name, scope, ok := strings.Cut(text, "=")
	field := map[string]*string{"run": &o.Scopes.Run, "files": &o.Scopes.Files, "admin": &o.Scopes.Admin,
		"read": &o.Scopes.Read, "operate": &o.Scopes.Operate}[name]
	if !ok || field == nil {
		return fmt.Errorf("%q must be like run=NAME; the scopes are run, files, read, operate and admin", text)
	}
	*field = scope
	return nil
}

// list splits a text at commas.
func list(text string) []string {
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
