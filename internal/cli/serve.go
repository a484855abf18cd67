package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) serveCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve MCP clients over HTTP",
		Long: `Serve the Model Context Protocol over Streamable HTTP at /mcp. For monitoring,
/healthz and /metrics exist. Sandboxes survive a restart of the server.

Clients must send a token. The first start makes one and prints it once, with a
configuration for clients; the server keeps only its hash. If standard error is
not a terminal, the first start writes the token to the file token in the state
directory, and prints the path. Only the owner can read that file.

If GLOVEBOX_TOKEN has a token, or GLOVEBOX_TOKEN_FILE names a file with one, the
server accepts that token and makes none. glovebox token makes more tokens. With
--oidc-issuer, the server also accepts tokens of an OpenID Connect issuer. With
--sign-in, clients need no token: people sign in on a page of the server.

E2B's SDKs use the same server at /e2b. With --e2b-listen, they can use the root
of a separate address: see docs/e2b.md.`,
		Example: `  glovebox serve
  glovebox serve --listen 127.0.0.1:9000
  glovebox serve --new-token          when the first token is lost
  glovebox serve --listen :8443 --tls-cert cert.pem --tls-key key.pem --allow-host box.example.com
  GLOVEBOX_TOKEN_FILE=/run/secrets/token glovebox serve`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.flags.adjust = func(c *config.Config) error { return flags.apply(cmd, c) }
			return p.serve(cmd.Context(), &flags)
		},
	}
	flags.add(cmd)
	return cmd
}

// gcPercent is the garbage at which a garbage collection begins, in per cent of the memory
// in use. That memory grows with the number of sandboxes, so Go's default of 100 leaves
// much to garbage. With 50, a server that began 5,000 sandboxes spent a hundredth of its
// CPU time on garbage collections.
const gcPercent = 50

func (p *program) serve(ctx context.Context, flags *serveFlags) (err error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	sys, err := p.open(ctx, func(o *app.Options) {
		o.Detached, o.Pool, o.Secrets, o.Metrics = true, true, true, true
	})
	if err != nil {
		return err
	}
	defer p.close(ctx, sys, &err)

	ln, err := sys.Listen(ctx)
	if err != nil {
		return err
	}
	err = sys.ServeHTTP(ctx, ln, func() error {
		// A token of a start that fails would never be shown, so make it last.
		token, err := p.firstToken(ctx, sys, flags.newToken)
		if err == nil {
			p.sayServing(ln, token, sys)
		}
		return err
	})
	if err != nil {
		return sandbox.Wrap(err, "serve", ln.MCP.Addr().String())
	}
	p.Say("glovebox: stopped")
	p.sayLiving(ctx, sys)
	return nil
}

// sayLiving reports how many sandboxes outlive the server.
func (p *program) sayLiving(ctx context.Context, sys *app.System) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	list, err := sys.Sandboxes(ctx)
	if err != nil {
		p.Say("warning: list sandboxes: %v", err)
	} else if len(list) > 0 {
		end := "they end at their limits"
		if !sys.EndsByLease() {
			end = "only a process of Glovebox ends them at their limits"
		}
		p.Say("sandboxes that live on: %d; %s; list them with glovebox ps, end them with glovebox stop --all", len(list), end)
	}
}

// A firstToken is a new token: its text for a person at a terminal, or the path
// of its file. It is zero if no token was made.
type firstToken struct{ text, file string }

// firstToken makes a token if there is none, or if replace is set. It returns
// the text only if standard error is a terminal, because a log may have other
// readers.
func (p *program) firstToken(ctx context.Context, sys *app.System, replace bool) (firstToken, error) {
	text, err := sys.FirstToken(ctx, replace)
	if err != nil || text == "" {
		return firstToken{}, err
	}
	if _, seen := console.Terminal(p.Err); seen {
		return firstToken{text: text}, nil
	}
	file, err := sys.KeepToken(ctx, text)
	return firstToken{file: file}, err
}

// sayServing prints the server's addresses and, for a new token, how clients use
// it.
func (p *program) sayServing(ln app.Listeners, token firstToken, sys *app.System) {
	addr := ln.MCP.Addr()
	colour := p.Painter(p.Err)
	server := sys.Config().Server
	scheme := "http"
	if server.TLSCert != "" {
		scheme = "https"
	}
	url := cmp.Or(strings.TrimSuffix(server.PublicURL, "/"), scheme+"://"+reachable(addr)) + "/mcp"
	p.Say("glovebox %s, driver %s, serving MCP at %s", Version(), sys.DriverName(), colour(console.Bold)(url))
	if server.Dashboard {
		p.Say("the dashboard is at %s; glovebox open opens it, signed in", strings.TrimSuffix(url, "mcp"))
	}
	var own net.Addr
	if ln.E2B != nil {
		own = ln.E2B.Addr()
	}
	e2bURL, variables := e2bAddress(server, strings.TrimSuffix(url, "/mcp"), own)
	if ln.E2B != nil {
		p.Say("serving E2B's SDKs at %s", colour(console.Bold)(e2bURL))
	}
	p.sayFallback(sys)
	if host, _, _ := net.SplitHostPort(addr.String()); !net.ParseIP(host).IsLoopback() && scheme == "http" && server.PublicURL == "" {
		p.Say("%s other machines can reach this address, and HTTP is not encrypted:\n"+
			"pass --tls-cert and --tls-key, or put a proxy with TLS in front of it", colour(console.Yellow)("warning:"))
	}
	if server.SignIn.Enabled {
		p.Say("MCP clients can sign in: give them the address only. People need a token for the page, from glovebox token create NAME")
	}
	switch {
	case token.text != "":
		p.sayToken(token.text, url, variables)
	case token.file != "":
		p.Say("\nThe token is in %s, which only its owner can read.\nFor an MCP client's configuration, with the token in place of TOKEN:\n\n%s\n\n"+
			"E2B's SDKs reach the server at %s; make a key for them with glovebox token create NAME --e2b.\n",
			token.file, indent(clientConfig(url, "TOKEN")), e2bURL)
	case server.Token != "":
		p.Say("Clients must send the token from the environment, or a token that was made earlier.")
	default:
		if file := sys.TokenFile(); file != "" {
			p.Say("Clients must send a token. The first start wrote its token to %s", file)
		} else {
			p.Say("Clients must send a token. A token is shown only once, when it is made.")
		}
		p.Say("To make another, use glovebox token create NAME")
	}
}

// e2bAddress returns the URL of E2B's control plane, and the variables by which
// E2B's SDKs find it. base is the URL of the server, and own the address for E2B's
// protocol alone, or nil.
func e2bAddress(server config.Server, base string, own net.Addr) (url, variables string) {
	url = base + "/e2b"
	if own != nil {
		if d := server.E2BDomain; d != "" { // its hosts are reached by TLS, here or at a proxy
			return "https://api." + d, "E2B_DOMAIN=" + d
		}
		url = "http://" + reachable(own)
		if server.TLSCert != "" {
			url = "https://" + reachable(own)
		}
	}
	return url, "E2B_API_URL=" + url + " E2B_SANDBOX_URL=" + url + " E2B_VOLUME_API_URL=" + url
}

// sayToken prints a token with examples of its use. E2B's SDKs find the server by
// e2bVariables.
func (p *program) sayToken(token, url, e2bVariables string) {
	colour := p.Painter(p.Err)
	p.Say("\nThe token, which is shown only now:\n\n  %s\n", colour(console.Bold)(token))
	p.Say("For an MCP client's configuration:\n\n%s\n", indent(clientConfig(url, token)))
	p.Say("For E2B's SDKs:\n\n  export %s\n  export E2B_API_KEY=%s\n", e2bVariables, app.E2BKey(token))
	p.Say("Or try it:\n\n  curl -sS %s -H 'Authorization: Bearer %s' \\\n"+
		"    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\\n"+
		"    -d '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"curl\",\"version\":\"0\"}}}'\n",
		url, token)
}

// clientConfig returns the configuration that most MCP clients accept.
func clientConfig(url, token string) string {
	type server struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
	}
	text, err := json.MarshalIndent(map[string]any{
		"mcpServers": map[string]server{
			"glovebox": {"http", url, map[string]string{"Authorization": "Bearer " + token}},
		},
	}, "", "  ")
	if err != nil {
		return fmt.Sprint(err) // strings always encode
	}
	return string(text)
}

// reachable returns an address at which a client on this machine reaches addr.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}
