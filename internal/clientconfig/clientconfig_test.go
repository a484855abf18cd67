package clientconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gotoml "github.com/pelletier/go-toml/v2"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/tailscale/hujson"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var update = flag.Bool("update", false, "rewrite what the tests expect in testdata")

func environment(system, home string) Environment {
	return Environment{
		OS: system, Home: home, Project: home,
		Getenv: func(string) string { return "" },
		Exists: func(path string) bool { _, err := os.Stat(path); return err == nil },
		InPath: func(string) bool { return false },
	}
}

var (
	local  = Server{Name: "glovebox", Command: "/opt/a b/glovebox", Args: []string{"mcp", "--profile", "<x> & \"y\""}}
	remote = Server{Name: "glovebox", URL: "https://box.example.com/mcp?a=1&b=2", Token: "gbx_secret"}
)

// TestGoldens changes files as people have them: each of testdata/*.txtar
// holds a file before, after each change, and after the removal.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	covered := map[string]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(strings.TrimSpace(string(archive.Comment)), " ")
			client, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			covered[name] = true
			parts := map[string][]byte{}
			for _, f := range archive.Files {
				parts[f.Name] = f.Data
			}
			env := environment("linux", t.TempDir())
			path, err := client.path(env, User)
			if err != nil {
				t.Fatal(err)
			}
			before, there := parts["before"]
			if there {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, before, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			archive.Files = archive.Files[:0]
			if there {
				archive.Files = append(archive.Files, txtar.File{Name: "before", Data: before})
			}
			step := func(name string, plan func() (Change, error)) {
				t.Helper()
				for _, again := range []bool{false, true} {
					change, err := plan()
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if again && change.Needed() {
						t.Errorf("%s is not idempotent:\n%s", name, cmp.Diff(string(change.Before), string(change.After)))
					}
					if _, err := change.Apply(time.Now()); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
				got, err := os.ReadFile(path)
				if _, has := parts[name]; errors.Is(err, fs.ErrNotExist) && (*update || !has) {
					return // a golden without the part wants no file
				}
				if err != nil {
					t.Fatal(err)
				}
				if !*update {
					if _, has := parts[name]; !has {
						t.Errorf("%s: there is a file, want none", name)
					}
					if diff := cmp.Diff(string(parts[name]), string(got)); diff != "" {
						t.Errorf("%s (-want +got):\n%s", name, diff)
					}
				}
				archive.Files = append(archive.Files, txtar.File{Name: name, Data: got})
			}
			step("local", func() (Change, error) { return client.Plan(env, User, local) })
			if client.remote != nil {
				step("remote", func() (Change, error) { return client.Plan(env, User, remote) })
			}
			step("removed", func() (Change, error) { return client.PlanRemoval(env, User, "glovebox") })
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for _, c := range Clients() {
		if !c.ByHand() && !covered[c.Name] {
			t.Errorf("no golden of %s", c.Name)
		}
	}
}

// TestPlaces compares where each client's file is on each system.
func TestPlaces(t *testing.T) {
	var b strings.Builder
	for _, system := range []string{"linux", "darwin", "windows"} {
		home := map[string]string{"linux": "/home/ann", "darwin": "/Users/ann", "windows": `C:\Users\ann`}[system]
		plain := environment(system, home)
		moved := plain
		moved.Getenv = func(name string) string {
			switch {
			case system == "windows":
				return `D:\` + strings.ToLower(name)
			default:
				return "/moved/" + strings.ToLower(name)
			}
		}
		for _, c := range Clients() {
			if c.ByHand() {
				continue
			}
			for what, env := range []Environment{plain, moved} {
				path, err := c.path(env, User)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "%s %s %s: %s\n", system, []string{"plain", "moved"}[what], c.Name, path)
			}
			if path, err := c.path(plain, Project); err == nil {
				fmt.Fprintf(&b, "%s project %s: %s\n", system, c.Name, path)
			}
		}
	}
	golden := filepath.Join("testdata", "places.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRelativeVariablesAreIgnored(t *testing.T) {
	env := environment("linux", "/home/ann")
	env.Getenv = func(string) string { return "relative/place" }
	c, err := Find("codex")
	if err != nil {
		t.Fatal(err)
	}
	if path, err := c.path(env, User); err != nil || path != "/home/ann/.codex/config.toml" {
		t.Errorf("path = %q, %v", path, err)
	}
}

func TestBadFilesAreLeftAlone(t *testing.T) {
	for _, test := range []struct{ client, text string }{
		{"cursor", "{"},
		{"cursor", "[]"},
		{"cursor", `"text"`},
		{"cursor", `{"mcpServers": []}`},
		{"cursor", `{"mcpServers": null}`},
		{"cursor", `{"a": 1} {"b": 2}`},
		{"cursor", "\x00\x01"},
		{"codex", "a = "},
		{"codex", "[mcp_servers"},
		{"codex", "mcp_servers = 3\n"},
		{"codex", "mcp_servers = { other = { command = \"x\" } }\n"},
		{"codex", "mcp_servers.glovebox.command = \"x\"\n"},
		{"codex", "[mcp_servers.glovebox]\ncommand = \"x\"\n[other]\na = 1\n[mcp_servers.glovebox.env]\nA = \"1\"\n"},
		{"codex", "[[mcp_servers.glovebox]]\ncommand = \"x\"\n[[mcp_servers.glovebox]]\ncommand = \"y\"\n[other]\n"},
	} {
		c, err := Find(test.client)
		if err != nil {
			t.Fatal(err)
		}
		env := environment("linux", t.TempDir())
		path, _ := c.path(env, User)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		change, err := c.Plan(env, User, local)
		if strings.HasPrefix(test.text, "[[") && err == nil {
			continue // a list of tables is replaced as one
		}
		if !errors.Is(err, sandbox.Invalid) || sandbox.HintOf(err) == "" {
			t.Errorf("%q: change %q, error %v (hint %q); want one of kind invalid with a hint", test.text, change.After, err, sandbox.HintOf(err))
		}
	}
}

// TestAlternateName: a file with the client's other name is changed if it is the
// only one.
func TestAlternateName(t *testing.T) {
	c, err := Find("opencode")
	if err != nil {
		t.Fatal(err)
	}
	env := environment("linux", t.TempDir())
	path := func() string {
		t.Helper()
		path, err := c.Path(env, Project)
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Base(path)
	}
	for _, name := range []string{"opencode.json", "opencode.jsonc", "opencode.json"} {
		if got := path(); got != name {
			t.Errorf("the file is %s; want %s", got, name)
		}
		next := map[string]string{"opencode.json": "opencode.jsonc", "opencode.jsonc": "opencode.json"}[name]
		if err := os.WriteFile(filepath.Join(env.Project, next), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProjectsGetNoToken(t *testing.T) {
	for _, c := range Clients() {
		if c.project == "" || c.remote == nil {
			continue
		}
		change, err := c.Plan(environment("linux", t.TempDir()), Project, remote)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(change.After, []byte(remote.Token)) || change.Secret {
			t.Errorf("%s: the token is in the project's file:\n%s", c.Name, change.After)
		}
		if !bytes.Contains(change.After, []byte(TokenVariable)) || change.Note == "" {
			t.Errorf("%s: nothing says where the token comes from:\n%s", c.Name, change.After)
		}
	}
}

func TestUnsupported(t *testing.T) {
	c, err := Find("claude-desktop")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Plan(environment("linux", t.TempDir()), User, remote); !errors.Is(err, sandbox.Unsupported) {
		t.Errorf("a URL for Claude Desktop: %v", err)
	}
	if _, err := c.Plan(environment("linux", t.TempDir()), Project, local); !errors.Is(err, sandbox.Unsupported) {
		t.Errorf("a project of Claude Desktop: %v", err)
	}
	if _, err := Find("emacs"); !errors.Is(err, sandbox.Invalid) || !strings.Contains(sandbox.HintOf(err), "cursor") {
		t.Errorf("Find of an unknown client: %v, hint %q", err, sandbox.HintOf(err))
	}
}

func TestInstalled(t *testing.T) {
	home := t.TempDir()
	env := environment("linux", home)
	names := func() (list []string) {
		for _, c := range Clients() {
			if c.Installed(env) {
				list = append(list, c.Name)
			}
		}
		return list
	}
	if got := names(); len(got) != 0 {
		t.Errorf("in an empty home there are %q", got)
	}
	if err := os.Mkdir(filepath.Join(home, ".cursor"), 0o755); err != nil {
		t.Fatal(err)
	}
	env.InPath = func(name string) bool { return name == "claude" }
	if diff := cmp.Diff([]string{"claude-code", "cursor"}, names()); diff != "" {
		t.Error(diff)
	}
}

func TestApply(t *testing.T) {
	c, err := Find("cursor")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	env := environment("linux", home)
	dir := filepath.Join(home, ".cursor")
	path := filepath.Join(dir, "mcp.json")
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	plan := func(s Server) Change {
		t.Helper()
		change, err := c.Plan(env, User, s)
		if err != nil {
			t.Fatal(err)
		}
		return change
	}

	// A new file, its directory with it, that nobody else reads.
	if backup, err := plan(remote).Apply(now); err != nil || backup != "" {
		t.Fatalf("Apply = %q, %v", backup, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Fatalf("the new file: %v, %v", info, err)
	}

	// One that everybody could read is closed when a token comes in, and so
	// is the copy.
	if err := os.WriteFile(path, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	backup, err := plan(remote).Apply(now)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, backup} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
			t.Errorf("%s: %v, %v", p, info.Mode(), err)
		}
	}
	if data, err := os.ReadFile(backup); err != nil || string(data) != "{}" {
		t.Errorf("the copy has %q, %v", data, err)
	}

	// Two copies in one second are two.
	second, err := plan(local).Apply(now)
	if err != nil || second == backup {
		t.Errorf("Apply = %q, %v", second, err)
	}

	// What somebody wrote in between stays.
	change := plan(remote)
	if err := os.WriteFile(path, []byte(`{"theirs": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := change.Apply(now); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("Apply over another's change: %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != `{"theirs": 1}` {
		t.Errorf("the file has %q", data)
	}

	// A link stays, and what it names is changed.
	t.Run("Link", func(t *testing.T) {
		real := filepath.Join(home, "dotfiles.json")
		if err := os.Rename(path, real); err != nil {
			t.Fatal(err)
		}
		err := os.Symlink(real, path)
		if err == nil {
			_, err = os.Readlink(path)
		}
		if err != nil && runtime.GOOS == "windows" { // which allows it not everybody
			t.Skipf("no links here: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan(local).Apply(now); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("the link is %v, %v", info.Mode(), err)
		}
		if data, _ := os.ReadFile(real); !strings.Contains(string(data), `"theirs": 1`) || !strings.Contains(string(data), "glovebox") {
			t.Errorf("what the link names has %s", data)
		}
	})

	// Nothing half-made is left.
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "mcp.json" && !strings.HasSuffix(e.Name(), ".bak") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

func TestApplyWithoutRoom(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root may write anywhere: a file in the directory's place does as well.
		t.Log("as root a file stands where the directory should be")
	}
	c, _ := Find("cursor")
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".cursor"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	change, err := c.Plan(environment("linux", home), User, local)
	if err == nil && runtime.GOOS == "windows" { // where what is below a file is only not there
		_, err = change.Apply(time.Now())
	}
	if !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("below a file: %v", err)
	}
}

// FuzzJSON checks that whatever the file was, all but our entry stays.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a":1}`, "{\n\t\"a\": [1, 2,], // c\n}\n", `{"mcpServers":{"x":{}}}`,
		"{\"mcpServers\": {\n /* a */ \"x\": {} /* b */ , // c\n}, }", "\xef\xbb\xbf{\r\n  \"a\": 1\r\n}\r\n",
		`{"mcpServers":{"glovebox":1,"x":2}}`, "{ // c\n}", "{\"mcpServers\": { /* c */ } // d\n}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e := command(local)
		out, err := jsonc{}.set(text, "mcpServers", "glovebox", e)
		if err != nil {
			return
		}
		says := func(text []byte) map[string]any {
			t.Helper()
			v, err := hujson.Parse(bytes.TrimPrefix(text, byteOrderMark))
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			said, err := meaning(v)
			if err != nil {
				t.Skip() // a parser more strict than the other
			}
			var doc map[string]any
			if err := json.Unmarshal([]byte(said), &doc); err != nil {
				t.Fatal(err)
			}
			return doc
		}
		before := map[string]any{}
		if len(bytes.TrimSpace(bytes.TrimPrefix(text, byteOrderMark))) > 0 {
			before = says(text)
		}
		after := says(out)
		servers, _ := after["mcpServers"].(map[string]any)
		if servers == nil || servers["glovebox"] == nil {
			t.Fatalf("%q became %q: no entry", text, out)
		}
		drop := func(doc map[string]any) {
			if s, ok := doc["mcpServers"].(map[string]any); ok {
				delete(s, "glovebox")
				if len(s) == 0 {
					delete(doc, "mcpServers")
				}
			}
		}
		drop(before)
		drop(after)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("%q became %q:\n%s", text, out, diff)
		}
		again, err := jsonc{}.set(out, "mcpServers", "glovebox", e)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("not idempotent: %q, then %q, %v", out, again, err)
		}
		gone, err := jsonc{}.remove(out, "mcpServers", "glovebox")
		if err != nil {
			t.Fatal(err)
		}
		rest := says(gone)
		drop(rest)
		if diff := cmp.Diff(before, rest); diff != "" {
			t.Fatalf("%q after removal is %q:\n%s", text, gone, diff)
		}
		// Comments are not lost either.
		for _, comment := range [][]byte{[]byte("//"), []byte("/*")} {
			if n := bytes.Count(text, comment); !bytes.Contains(text, []byte(`"`)) && bytes.Count(gone, comment) < n {
				t.Fatalf("%q after removal is %q: a comment is lost", text, gone)
			}
		}
	})
}

// FuzzTOML checks the same of TOML.
func FuzzTOML(f *testing.F) {
	for _, s := range []string{"", "a = 1", "# c\n[mcp_servers.x]\ncommand = 'x' # c\n\n# about b\n[b]\nc = [1,\n2]\n",
		"[mcp_servers.glovebox]\ncommand = \"old\"\n[mcp_servers.glovebox.env]\nA = '''\n[b]\n'''\n# c\n[b]\n",
		"[mcp_servers]\n", "a = 1\r\n[b]\r\n", "[ mcp_servers . 'glovebox' ]\nx = 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e := command(local)
		out, err := toml{}.set(text, "mcp_servers", "glovebox", e)
		if err != nil {
			return
		}
		var doc map[string]any
		if err := gotoml.Unmarshal(out, &doc); err != nil {
			t.Fatalf("%q became %q: %v", text, out, err)
		}
		again, err := toml{}.set(out, "mcp_servers", "glovebox", e)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("not idempotent: %q, then %q, %v", out, again, err)
		}
		gone, err := toml{}.remove(out, "mcp_servers", "glovebox")
		if err != nil {
			t.Fatalf("remove from %q: %v", out, err)
		}
		if _, v, err := apart(gone, "mcp_servers", "glovebox"); err != nil || v != nil {
			t.Fatalf("after removal there is %v, %v", v, err)
		}
		if _, was, err := apart(text, "mcp_servers", "glovebox"); err == nil && was == nil &&
			!bytes.Equal(bytes.TrimSpace(gone), bytes.TrimSpace(text)) {
			t.Fatalf("%q after adding and removing is %q", text, gone)
		}
	})
}

// TestRemovalOfFile: a removal removes a file only if Glovebox made it and it has
// nothing else. A backup without the entry shows that the file was there before.
func TestRemovalOfFile(t *testing.T) {
	local := Server{Name: "glovebox", Command: "/usr/bin/glovebox", Args: []string{"mcp"}}
	other := Server{Name: "glovebox", Command: "/usr/bin/glovebox", Args: []string{"mcp", "--profile", "automata"}}
	for name, c := range map[string]struct {
		before  string // content before the installation; "" is no file
		after   string // replaces the content after it; "" leaves it
		link    bool
		removes bool
	}{
		"made":               {removes: true},
		"there before":       {before: "{}"},
		"there, with others": {before: `{"mcpServers":{"files":{"command":"npx"}}}`},
		"other content now":  {after: `{"mcpServers":{"glovebox":{"command":"x"}},"theme":"dark"}`},
		"a comment now":      {after: `{ /* mine */ "mcpServers":{"glovebox":{"command":"x"}}}`},
		"a link":             {link: true},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := Find("cursor")
			if err != nil {
				t.Fatal(err)
			}
			env := environment("linux", t.TempDir())
			path, err := client.path(env, User)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if c.before != "" {
				if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range []Server{local, other} { // the second leaves a backup with the entry
				change, err := client.Plan(env, User, s)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := change.Apply(time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			if c.after != "" {
				if err := os.WriteFile(path, []byte(c.after), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.link {
				if err := errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path)); err != nil {
					t.Fatal(err)
				}
			}
			change, err := client.PlanRemoval(env, User, "glovebox")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := change.Apply(time.Now()); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); change.Removes != c.removes || errors.Is(err, fs.ErrNotExist) != c.removes {
				t.Errorf("removes %t, then %v; want removed: %t", change.Removes, err, c.removes)
			}
		})
	}
}
