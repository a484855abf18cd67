//go:build linux

package clients

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSignIn has clients sign in at a server with --sign-in: each finds the
// authorization server by the answer 401, registers itself, and shows its user an
// address. The user types a token there. Then the client gets the list of tools.
func TestSignIn(t *testing.T) {
	script, err := exec.LookPath("script")
	if err != nil {
		if required("agents") {
			t.Fatal("GLOVEBOX_REQUIRE has agents: the program script is not installed: apt-get install bsdutils")
		}
		t.Skip("the program script is not installed: apt-get install bsdutils")
	}
	binary := glovebox(t)
	server, token := serve(t, binary, "--sign-in")
	for _, c := range []struct {
		name, module string
		install      bool // with an entry that glovebox install wrote
		signIn       []string
		after        []string // shows that the client may use the server; nil if signing in shows it
		want         string
	}{
		{
			name: "Claude Code", module: "@anthropic-ai/claude-code", install: true,
			signIn: []string{modules(t, "@anthropic-ai/claude-code-linux-"+nodeArch()+"/claude"), "mcp", "login", "glovebox"},
			after:  []string{modules(t, "@anthropic-ai/claude-code-linux-"+nodeArch()+"/claude"), "mcp", "list"},
			want:   "Connected",
		},
		{
			name: "mcp-remote", module: "mcp-remote",
			signIn: []string{modules(t, ".bin/node"), modules(t, "mcp-remote/dist/client.js"), server},
			want:   "run_code",
		},
		{
			name: "Inspector", module: "../../../node/node_modules/@modelcontextprotocol/inspector",
			signIn: []string{
				modules(t, ".bin/node"), modules(t, "../../../node/node_modules/.bin/mcp-inspector"),
				"--cli", "--server-url", server, "--transport", "http", "--method", "tools/list",
			},
			want: "run_code",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			needModule(t, c.module)
			home := newHome(t)
			env := []string{
				"HOME=" + home, "PATH=" + filepath.Dir(modules(t, ".bin/node")) + ":" + os.Getenv("PATH"), "TMPDIR=" + home,
				"TERM=dumb", "NO_COLOR=1", "BROWSER=true", "SHELL=/bin/sh", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
			}
			if c.install {
				install := exec.CommandContext(t.Context(), binary, "install", "claude-code", "--url", server, "--sign-in")
				install.Env = env
				if out, err := install.CombinedOutput(); err != nil {
					t.Fatalf("glovebox install: %v\n%s", err, out)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			// The clients want a terminal.
			var out terminal
			cmd := exec.CommandContext(ctx, script, "-qec", strings.Join(c.signIn, " "), "/dev/null")
			cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, home, &out, &out
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			user := visit(t, &out, ended, token)
			for deadline := time.Now().Add(limit); user && c.after == nil && !strings.Contains(out.String(), c.want) && time.Now().Before(deadline); {
				select {
				case err := <-ended:
					ended <- err
					deadline = time.Time{}
				case <-time.After(100 * time.Millisecond):
				}
			}
			if c.after == nil {
				cancel() // mcp-remote does not end by itself
			}
			<-ended
			in.Close()
			shown := out.String()
			if c.after != nil {
				list := exec.CommandContext(t.Context(), c.after[0], c.after[1:]...)
				list.Env, list.Dir = env, home
				b, err := list.CombinedOutput()
				if err != nil {
					t.Error(err)
				}
				shown = string(b)
			}
			if !strings.Contains(shown, c.want) {
				t.Errorf("after the sign-in: %q, want %s; the client showed %q", shown, c.want, out.String())
			}
			if strings.Contains(out.String(), token) {
				t.Error("the client has the user's token")
			}
			serversEnd(t, home)
		})
	}
}

// A terminal keeps the output of a client.
type terminal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *terminal) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *terminal) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// authorizeURL is the whole address that a client shows its user.
var authorizeURL = regexp.MustCompile(`(http://127\.0\.0\.1:[0-9]+/authorize\?[!-~]*)[^!-~]`)

// visit opens the address that a client shows, types a token into the page of the server
// and follows it back to the client. It reports whether the client showed an address.
func visit(t *testing.T, out *terminal, ended chan error, token string) bool {
	t.Helper()
	var at *url.URL
	for at == nil {
		for _, text := range authorizeURL.FindAllStringSubmatch(out.String(), -1) {
			u, err := url.Parse(text[1])
			if need := []string{"client_id", "code_challenge", "redirect_uri", "state"}; err == nil && !slices.ContainsFunc(need, func(p string) bool { return u.Query().Get(p) == "" }) {
				at = u
			}
		}
		select {
		case err := <-ended:
			ended <- err
			if at == nil {
				t.Errorf("the client ended without an address: %v: %q", err, out.String())
				return false
			}
		case <-time.After(200 * time.Millisecond): // for the rest of the address
		}
	}
	form := at.Query()
	form.Set("token", token)
	form.Set("decision", "allow")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at.Host+at.Path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Error(err)
		return false
	}
	r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {"http://" + at.Host}}
	res, err := http.DefaultClient.Do(r) // it follows the redirection to the client
	if err != nil {
		t.Errorf("the user's answer: %v", err)
		return false
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Request.URL.Host == at.Host {
		t.Errorf("the user's answer led to %s: %s", res.Request.URL, res.Status)
	}
	return true
}
