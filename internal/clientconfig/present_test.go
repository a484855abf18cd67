package clientconfig

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPresent reads back the entry that Plan makes, for every client.
func TestPresent(t *testing.T) {
	for _, c := range Clients() {
		if c.ByHand() {
			continue
		}
		env := environment("linux", t.TempDir())
		if _, ok, err := c.Present(env, User, "glovebox"); ok || err != nil {
			t.Errorf("%s: without a file: %v, %v", c.Name, ok, err)
		}
		put := func(scope Scope, s Server) Present {
			t.Helper()
			change, err := c.Plan(env, scope, s)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			if _, err := change.Apply(time.Now()); err != nil {
				t.Fatal(err)
			}
			p, ok, err := c.Present(env, scope, s.Name)
			if !ok || err != nil {
				t.Fatalf("%s: %v, %v", c.Name, ok, err)
			}
			return p
		}
		if got := put(User, Server{Name: "glovebox", Command: "/g", Args: []string{"mcp", "--tool-prefix", "box_"}}); got.ToolPrefix() != "box_" || got.URL != "" {
			t.Errorf("%s: a program: %+v", c.Name, got)
		}
		if !c.Remote() {
			continue
		}
		got := put(User, remote)
		if want := (Present{Path: got.Path, URL: remote.URL, Token: remote.Token}); !cmp.Equal(got, want) {
			t.Errorf("%s: a server: %s", c.Name, cmp.Diff(want, got))
		}
		if err := os.Chmod(got.Path, 0o640); err != nil {
			t.Fatal(err)
		}
		if p, _, _ := c.Present(env, User, "glovebox"); p.Exposed != (runtime.GOOS != "windows") {
			t.Errorf("%s: a file for the group: exposed %t", c.Name, p.Exposed)
		}
		if c.project == "" {
			continue
		}
		env.Project = t.TempDir()
		got = put(Project, Server{Name: "glovebox", URL: remote.URL, WantsToken: true})
		if want := (Present{Path: got.Path, URL: remote.URL, Variable: true}); !cmp.Equal(got, want) {
			t.Errorf("%s: a project: %s", c.Name, cmp.Diff(want, got))
		}
	}
}

// TestCodexEntry changes an entry of Codex with settings of its user.
func TestCodexEntry(t *testing.T) {
	c, err := Find("codex")
	if err != nil {
		t.Fatal(err)
	}
	const head = "[mcp_servers.glovebox]\nurl = \"https://box.example.com/mcp?a=1&b=2\"\n"
	const headers = "\n[mcp_servers.glovebox.http_headers]\nX-Mine = \"1\"\n"
	for _, tt := range []struct {
		name, before, want string
		server             Server
	}{
		{"a token that is exported", "", head + "bearer_token_env_var = \"GLOVEBOX_TOKEN\"\n", Server{Token: "gbx_a", Exported: true}},
		{"consent", "", head + "default_tools_approval_mode = \"approve\"\n", Server{Approve: true}},
		{"consent in place of a refusal", head + "default_tools_approval_mode = \"prompt\" # mine\ntool_timeout_sec = 9\n",
			head + "default_tools_approval_mode = \"approve\"\ntool_timeout_sec = 9\n", Server{Approve: true}},
		{"no consent", head + "default_tools_approval_mode = \"prompt\"\n", head + "default_tools_approval_mode = \"prompt\"\n", Server{}},
		{"headers of the user", head + headers, head + headers, Server{}},
		{"headers of the user and a token", head + headers, "", Server{Token: "gbx_a"}},
	} {
		env := environment("linux", t.TempDir())
		path := filepath.Join(env.Home, ".codex", "config.toml")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(tt.before), 0o600); err != nil {
			t.Fatal(err)
		}
		tt.server.Name, tt.server.URL = "glovebox", remote.URL
		change, err := c.Plan(env, User, tt.server)
		if (err != nil) != (tt.want == "") {
			t.Errorf("%s: %v", tt.name, err)
		} else if err == nil && string(change.After) != tt.want {
			t.Errorf("%s: %s", tt.name, cmp.Diff(tt.want, string(change.After)))
		}
	}
}
