package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
)

// toolFlags adds the flags that select the MCP tools, for every transport.
func toolFlags(cmd *cobra.Command, c *config.MCP) {
	f := cmd.Flags()
	f.StringVar(&c.Profile, "profile", "", "offer the tools of this `profile`: "+strings.Join(app.ProfileNames(), ", ")+" (GLOVEBOX_PROFILE)")
	f.StringSliceVar(&c.Tools, "tools", nil, "offer only these `tools`, such as run_code,get_run")
	f.StringVar(&c.ToolPrefix, "tool-prefix", "", "put this `prefix` in front of the names of all tools, such as box_")
	f.StringSliceVar(&c.Approve, "approve", nil, "ask a person at the client before a sandbox gets more than the defaults: `what` is network, limits or both")
	f.BoolVar(&c.ReadOnly, "read-only", false, "offer only tools that change nothing")
}

// serveFlags holds the values of serve's flags.
type serveFlags struct {
	server   config.Server
	mcp      config.MCP
	scopes   []string
	newToken bool
}

func (s *serveFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.server.Listen, "listen", "", "`address` to listen on; default 127.0.0.1:8080 (GLOVEBOX_LISTEN)")
	f.BoolVar(&s.newToken, "new-token", false, "replace the token that the first start made")
	f.StringVar(&s.server.E2BListen, "e2b-listen", "", "also serve E2B's protocol at this `address`, such as 127.0.0.1:3000 (GLOVEBOX_E2B_LISTEN)")
	f.StringVar(&s.server.E2BDomain, "e2b-domain", "", "`domain` whose subdomains lead to sandboxes by E2B's protocol (GLOVEBOX_E2B_DOMAIN)")
	f.BoolVar(&s.server.E2BPublicPorts, "e2b-public-ports", false, "serve ports of sandboxes of E2B's protocol without a token (GLOVEBOX_E2B_PUBLIC_PORTS)")
	f.StringVar(&s.server.MetricsListen, "metrics-listen", "", "serve /metrics only at this `address`, such as 127.0.0.1:9090 (GLOVEBOX_METRICS_LISTEN)")
	f.StringVar(&s.server.PublicURL, "public-url", "", "`URL` by which clients reach the server, if it is behind a proxy (GLOVEBOX_PUBLIC_URL)")
	f.StringVar(&s.server.Shard, "shard", "", "`number` of this server, from 0 to 1023, among several behind one address (GLOVEBOX_SHARD)")
	f.StringVar(&s.server.PreviewDomain, "preview-domain", "", "`domain` whose subdomains lead to ports of sandboxes (GLOVEBOX_PREVIEW_DOMAIN)")
	f.StringVar(&s.server.TLSCert, "tls-cert", "", "serve HTTPS with the certificate in this PEM `file` (GLOVEBOX_TLS_CERT)")
	f.StringVar(&s.server.TLSKey, "tls-key", "", "PEM `file` with the key of the certificate (GLOVEBOX_TLS_KEY)")
	f.StringSliceVar(&s.server.AllowHosts, "allow-host", nil, "also accept this `name` in the Host header (GLOVEBOX_ALLOW_HOSTS)")
	f.StringSliceVar(&s.server.AllowOrigins, "allow-origin", nil, "accept requests from web pages of this `origin` (GLOVEBOX_ALLOW_ORIGINS)")
	f.StringSliceVar(&s.server.TrustedProxies, "trusted-proxy", nil, "`address` or range of your own proxies, whose header X-Forwarded-For names the client (GLOVEBOX_TRUSTED_PROXIES)")
	f.Float64Var(&s.server.RateLimit, "rate-limit", 0, "limit of requests per second of one principal; default 500")
	f.Var(&s.server.BodyLimit, "body-limit", "limit of the size of one request; default 8MiB")
	f.Lookup("body-limit").DefValue = "" // the help states the default, which is not zero
	f.IntVar(&s.server.Sessions, "max-sessions", 0, "largest `number` of open MCP sessions; default 1000")
	f.StringVar(&s.server.OIDC.Issuer, "oidc-issuer", "", "also accept access tokens of the OpenID Connect issuer at this `URL` (GLOVEBOX_OIDC_ISSUER)")
	f.StringVar(&s.server.OIDC.Audience, "oidc-audience", "", "`audience` (aud) of tokens for this server (GLOVEBOX_OIDC_AUDIENCE)")
	f.StringVar(&s.server.OIDC.Client.ID, "oidc-client-id", "", "`ID` of this server at the issuer, so that people sign in to the dashboard there; GLOVEBOX_OIDC_CLIENT_SECRET is its secret (GLOVEBOX_OIDC_CLIENT_ID)")
	f.StringSliceVar(&s.scopes, "oidc-scope", nil, "the issuer's name of a scope, such as `run=NAME`; the scopes are run, files, read, operate and admin")
	f.BoolVar(&s.server.Dashboard, "dashboard", true, "serve pages for people at the root of the server; --dashboard=false turns them off (GLOVEBOX_DASHBOARD)")
	f.BoolVar(&s.server.SignIn.Enabled, "sign-in", false, "let MCP clients sign in by OAuth: people type a Glovebox token on a page of this server (GLOVEBOX_SIGN_IN)")
	toolFlags(cmd, &s.mcp)
}

// apply overwrites the configuration with the flags that were given.
func (s *serveFlags) apply(cmd *cobra.Command, c *config.Config) error {
	to, from := &c.Server, &s.server
	set := map[string]func(){
		"listen":           func() { to.Listen = from.Listen },
		"e2b-listen":       func() { to.E2BListen = from.E2BListen },
		"e2b-domain":       func() { to.E2BDomain = from.E2BDomain },
		"e2b-public-ports": func() { to.E2BPublicPorts = from.E2BPublicPorts },
		"metrics-listen":   func() { to.MetricsListen = from.MetricsListen },
		"public-url":       func() { to.PublicURL = from.PublicURL },
		"shard":            func() { to.Shard = from.Shard },
		"preview-domain":   func() { to.PreviewDomain = from.PreviewDomain },
		"tls-cert":         func() { to.TLSCert = from.TLSCert },
		"tls-key":          func() { to.TLSKey = from.TLSKey },
		"allow-host":       func() { to.AllowHosts = from.AllowHosts },
		"allow-origin":     func() { to.AllowOrigins = from.AllowOrigins },
		"trusted-proxy":    func() { to.TrustedProxies = from.TrustedProxies },
		"rate-limit":       func() { to.RateLimit = from.RateLimit },
		"body-limit":       func() { to.BodyLimit = from.BodyLimit },
		"max-sessions":     func() { to.Sessions = from.Sessions },
		"oidc-issuer":      func() { to.OIDC.Issuer = from.OIDC.Issuer },
		"dashboard":        func() { to.Dashboard = from.Dashboard },
		"sign-in":          func() { to.SignIn.Enabled = from.SignIn.Enabled },
		"oidc-client-id":   func() { to.OIDC.Client.ID = from.OIDC.Client.ID },
		"oidc-audience":    func() { to.OIDC.Audience = from.OIDC.Audience },
	}
	for name, do := range set {
		if cmd.Flags().Changed(name) {
			do()
		}
	}
	for _, text := range s.scopes {
		if err := to.OIDC.SetScope(text); err != nil {
			return console.UsageError("--oidc-scope: %w", err)
		}
	}
	applyTools(cmd, &c.MCP, s.mcp)
	return nil
}

func applyTools(cmd *cobra.Command, to *config.MCP, from config.MCP) {
	if cmd.Flags().Changed("profile") {
		to.Profile = from.Profile
	}
	if cmd.Flags().Changed("tools") {
		to.Tools = from.Tools
	}
	if cmd.Flags().Changed("tool-prefix") {
		to.ToolPrefix = from.ToolPrefix
	}
	if cmd.Flags().Changed("approve") {
		to.Approve = from.Approve
	}
	if cmd.Flags().Changed("read-only") {
		to.ReadOnly = from.ReadOnly
	}
}
