package config

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// MCP is what clients of the Model Context Protocol are offered, over HTTP and
// over stdio.
type MCP struct {
	// Profile names the set of tools to offer: native, or that of a server
	// that Glovebox replaces.
	Profile string `yaml:"profile"`
	// Tools names the only tools to offer; empty is all.
	Tools []string `yaml:"tools"`
	// ReadOnly offers only tools that change nothing.
	ReadOnly bool `yaml:"read_only"`
	// AllowDirs are directories of this machine that tools over stdio may
	// copy from and to.
	AllowDirs []string `yaml:"allow_dirs"`
	// AllowToolFiles lets those tools write files there that programs on this
	// machine execute or obey, such as .git.
	AllowToolFiles bool `yaml:"allow_tool_files"`
}

// Server is what glovebox serve does.
type Server struct {
	// Listen is the address to listen on, as host:port.
	Listen string `yaml:"listen"`
	// E2BListen is an address at which E2B's protocol is served, beside /e2b of
	// Listen; empty is none. E2BDomain is that below which names such as
	// 49983-sbx_….DOMAIN lead there, too.
	E2BListen string `yaml:"e2b_listen"`
	E2BDomain string `yaml:"e2b_domain"`
	// MetricsListen is an address at which metrics are served, in place of
	// /metrics of Listen; empty is there.
	MetricsListen string `yaml:"metrics_listen"`
	// PublicURL is how clients reach the server, if not by the address that
	// it listens on: that of a proxy.
	PublicURL string `yaml:"public_url"`
	// PreviewDomain is that below which a port of a sandbox has a host's name
	// of its own, as PORT-SANDBOX.DOMAIN: empty is localhost where the server is
	// reached by a loopback address, and none elsewhere; "none" is none.
	PreviewDomain string `yaml:"preview_domain"`
	// TLSCert and TLSKey are PEM files to serve HTTPS with; both or none.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`
	// AllowHosts and AllowOrigins are accepted in the Host and Origin headers
	// of requests, besides those of the listening address itself.
	AllowHosts   []string `yaml:"allow_hosts"`
	AllowOrigins []string `yaml:"allow_origins"`
	// RateLimit is how many requests a second one principal may make, with
	// bursts of twice that.
	RateLimit float64 `yaml:"rate_limit"`
	// BodyLimit bounds the body of one request.
	BodyLimit Bytes `yaml:"body_limit"`
	// Sessions bounds the MCP sessions that are open at one time.
	Sessions int  `yaml:"sessions"`
	OIDC     OIDC `yaml:"oidc"`
	// Token is the bearer token that clients send. It comes from the
	// environment only, so that no file with it lies about; empty, one is
	// made on the first start.
	Token string `yaml:"-"`
}

// OIDC names an OpenID Connect issuer whose access tokens are accepted.
type OIDC struct {
	// Issuer is its URL; empty is none.
	Issuer string `yaml:"issuer"`
	// Audience is what its tokens for this server are issued for.
	Audience string     `yaml:"audience"`
	Scopes   OIDCScopes `yaml:"scopes"`
}

// OIDCScopes are the issuer's names of our scopes.
type OIDCScopes struct {
	Run   string `yaml:"run"`
	Files string `yaml:"files"`
	Admin string `yaml:"admin"`
}

func defaultServer() Server {
	return Server{
		Listen:    "127.0.0.1:8080",
		RateLimit: 500,
		BodyLimit: 8 << 20,
		Sessions:  1000,
		OIDC:      OIDC{Scopes: OIDCScopes{Run: "run", Files: "files", Admin: "admin"}},
	}
}

const (
	// minToken keeps people from protecting a server with "secret": what is
	// shorter can be guessed at the speed at which HTTP requests are answered.
	minToken = 16
	// minBody holds the arguments of any tool but a file's content.
	minBody = 64 << 10
)

// maxTokenFile bounds a file with a token; what is longer is some other file.
const maxTokenFile = 4 << 10

// readToken takes the token from a file, for those who do not want it in the
// environment, where other programs of the user can see it.
func (s *Server) readToken(path string) error {
	if s.Token != "" {
		return errors.New("GLOVEBOX_TOKEN is set, too; unset one of them")
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
		return fmt.Errorf("%s has more in it than one token", path)
	}
	s.Token = token
	return nil
}

func (s *Server) validate() error {
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
		return invalid("server.preview_domain", fmt.Sprintf("%q is not a domain", s.PreviewDomain), "write it like preview.example.com, or none")
	}
	if s.PublicURL != "" {
		u, err := url.Parse(s.PublicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return invalid("server.public_url", fmt.Sprintf("%q is not an address of a server", s.PublicURL),
				"write it like https://glovebox.example.com")
		}
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return invalid("server.tls_cert", "and server.tls_key go together, and only one of them is set",
			"name the files of both the certificate and its key, or neither")
	}
	if !(s.RateLimit > 0) {
		return invalid("server.rate_limit", fmt.Sprintf("%v is not a number of requests a second", s.RateLimit), "set it above 0")
	}
	if s.BodyLimit < minBody {
		return invalid("server.body_limit", fmt.Sprintf("%v is below the least, %v", s.BodyLimit, Bytes(minBody)), "write it like 8MiB")
	}
	if s.Sessions < 1 {
		return invalid("server.sessions", fmt.Sprintf("%d is not a number of sessions", s.Sessions), "set it to 1 or more")
	}
	if t := s.Token; t != "" && len(t) < minToken {
		return invalid("GLOVEBOX_TOKEN", fmt.Sprintf("has %d characters, fewer than %d", len(t), minToken),
			"unset it to have a token made, or make one with: openssl rand -hex 32")
	}
	return s.OIDC.validate()
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
		return invalid("server.oidc.issuer", fmt.Sprintf("%q is not an issuer's address", o.Issuer),
			"it begins with https:// and is exactly the iss of its tokens; http:// is for this machine only")
	}
	if o.Audience == "" {
		return invalid("server.oidc.audience", "is not set, and without it any token of the issuer would do",
			"set it to what the issuer puts into the aud of tokens for this server, often its public address")
	}
	for name, scope := range map[string]string{"run": o.Scopes.Run, "files": o.Scopes.Files, "admin": o.Scopes.Admin} {
		if scope == "" || strings.ContainsAny(scope, " \t\r\n\"\\") {
			return invalid("server.oidc.scopes."+name, fmt.Sprintf("%q is not the name of a scope", scope),
				"set it to the name that the issuer has for it")
		}
	}
	return nil
}

// SetScope sets the issuer's name of one scope, from a text like run=sandbox.run.
func (o *OIDC) SetScope(text string) error {
	name, scope, ok := strings.Cut(text, "=")
	field := map[string]*string{"run": &o.Scopes.Run, "files": &o.Scopes.Files, "admin": &o.Scopes.Admin}[name]
	if !ok || field == nil {
		return fmt.Errorf("%q is not like run=NAME; the scopes are run, files and admin", text)
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
