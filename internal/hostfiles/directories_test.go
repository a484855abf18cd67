package hostfiles

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// tree makes a directory that is allowed, beside a file that is not.
func tree(t *testing.T) (s *Directories, dir, secret string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the test makes links")
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, secret = filepath.Join(top, "open"), filepath.Join(top, "secret")
	for _, d := range []string{dir, filepath.Join(dir, "sub", "empty")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{secret: 0o644, filepath.Join(dir, "a"): 0o644, filepath.Join(dir, "sub", "tool"): 0o755} {
		if err := os.WriteFile(name, []byte(filepath.Base(name)), mode); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"in": "a", "out": secret, "up": "..", "gone": "nothing"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	s, err = OpenDirectories([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, dir, secret
}

func TestWalk(t *testing.T) {
	s, dir, secret := tree(t)
	got := map[string]string{}
	visit := func(f File) error {
		if f.Content == nil {
			got[f.Name] = "dir"
			return nil
		}
		b, err := io.ReadAll(f.Content)
		got[f.Name] = string(b)
		if f.Executable {
			got[f.Name] += "*"
		}
		return err
	}
	skipped, err := s.Walk(t.Context(), dir, visit)
	want := map[string]string{"a": "a", "in": "a", "sub": "dir", "sub/empty": "dir", "sub/tool": "tool*"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || skipped != 3 {
		t.Errorf("%d skipped, %v (-want +got):\n%s", skipped, err, diff)
	}
	got = map[string]string{}
	if _, err := s.Walk(t.Context(), filepath.Join(dir, "sub", "tool"), visit); err != nil || got[""] != "tool*" {
		t.Errorf("one file: %v, %v", got, err)
	}
	for _, name := range []string{
		secret, "/etc/passwd", filepath.Join(dir, "..", "secret"), filepath.Join(dir, "out"), filepath.Join(dir, "up", "secret"), "a", "", filepath.Dir(dir),
	} {
		got = map[string]string{}
		if _, err := s.Walk(t.Context(), name, visit); err == nil || len(got) > 0 || sandbox.KindOf(err) == sandbox.Internal {
			t.Errorf("%q: %v, %v; want nothing and an error that tells why", name, got, err)
		}
	}
	if _, err := s.Walk(t.Context(), filepath.Join(dir, "none"), visit); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("what there is not: %v; want not found", err)
	}
	if _, err := s.Walk(t.Context(), secret, visit); !strings.Contains(sandbox.HintOf(err), dir) {
		t.Errorf("hint %q; want the directory that is allowed", sandbox.HintOf(err))
	}
}

func TestWrite(t *testing.T) {
	s, dir, secret := tree(t)
	for _, name := range []string{"a", "new", "deep/er/new", "out"} {
		full := filepath.Join(dir, name)
		if err := s.Write(full, strings.NewReader("written")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		info, err := os.Lstat(full)
		b, readErr := os.ReadFile(full)
		if err != nil || readErr != nil || string(b) != "written" || !info.Mode().IsRegular() {
			t.Errorf("%s: %q, %v, %v; want a file", name, b, err, readErr)
		}
	}
	for _, name := range []string{secret, filepath.Join(dir, "up", "secret"), filepath.Join(dir, "up", "new"), dir, filepath.Join(dir, "sub"), "/etc/new", "new"} {
		if err := s.Write(name, strings.NewReader("written")); err == nil || sandbox.KindOf(err) == sandbox.Internal {
			t.Errorf("%s: %v; want an error that tells why", name, err)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("outside: %q, %v; want it as it was", b, err)
	}
	broken := io.MultiReader(strings.NewReader("half"), failing{})
	if err := s.Write(filepath.Join(dir, "a"), broken); err == nil {
		t.Error("a reader that fails gives no error")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "written" {
		t.Errorf("after a failure: %q, %v; want what was there", b, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("no more") }

func TestOpenRefuses(t *testing.T) {
	if _, err := OpenDirectories([]string{t.TempDir(), "/no/such/directory"}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("Open: %v; want invalid", err)
	}
	s, err := OpenDirectories(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(filepath.Join(t.TempDir(), "x"), strings.NewReader("")); err == nil || !strings.Contains(sandbox.HintOf(err), "--allow-dir") {
		t.Errorf("with none: %v, hint %q; want --allow-dir", err, sandbox.HintOf(err))
	}
}

// TestToolFiles refuses names of what programs here execute or obey, whatever a
// file system takes them for, and paths that lead there by links.
func TestToolFiles(t *testing.T) {
	s, dir, _ := tree(t)
	if err := os.MkdirAll(filepath.Join(dir, ".git", "hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(".git/hooks", filepath.Join(dir, "hooks")); err != nil {
		t.Fatal(err)
	}
	for name, tool := range map[string]string{
		".git/hooks/x": ".git", "a/.envrc": "a/.envrc", "a/.ENVRC": "a/.ENVRC", ".git ./x": ".git .", ".git::$INDEX_ALLOCATION/x": ".git::$INDEX_ALLOCATION",
		"GIT~1/x": "GIT~1", ".g\u200dit/x": ".g\u200dit", ".hu\u017fky/x": ".hu\u017fky",
		// Full case folding of APFS.
		".\u00dfh/x": ".\u00dfh", ".\u1e9eh/x": ".\u1e9eh", ".pro\ufb01le": ".pro\ufb01le", ".con\ufb01g/x": ".con\ufb01g", ".g\ufe0fit/x": ".g\ufe0fit",
		// Separators and short names of Windows.
		`.git\config`: ".git", `a\.git\config`: `a\.git`, "VSCODE~1/tasks.json": "VSCODE~1", "a/PRE-CO~1.YAM": "a/PRE-CO~1.YAM", "CL3F2A~12": "",
		"CL3F2~12": "CL3F2~12", "x~1 ": "x~1 ",
		".bash_aliases": ".bash_aliases", ".pre-commit-config.yaml": ".pre-commit-config.yaml", ".emacs.d/init.el": ".emacs.d", ".dir-locals.el": ".dir-locals.el",
		".vim/x": ".vim", ".nvim.lua": ".nvim.lua", ".tmux.conf": ".tmux.conf", ".jj/x": ".jj", ".svn/x": ".svn", ".mvn/x": ".mvn", ".bazelrc": ".bazelrc",
		".pnp.cjs": ".pnp.cjs", ".local/bin/x": ".local", ".netrc": ".netrc", ".cursorrules": ".cursorrules",
		// Documents and what runs elsewhere, which people copy on purpose.
		"CLAUDE.md": "", "AGENTS.md": "", ".github/workflows/x.yml": "",
		"a.txt~1~": "", "a~b": "", "longer-name~1": "", "~1": "", "stra\u00dfe": "",
		".gitignore": "", "git": "", "a.git/x": "", "x.envrc": "", "": "", "a/b": "", "...": "",
	} {
		if got := toolFile(name); got != tool {
			t.Errorf("toolFile(%q) = %q, want %q", name, got, tool)
		}
	}
	for _, name := range []string{".git/config", "sub/.vscode/tasks.json", "hooks/pre-commit", "hooks/new/x"} {
		err := s.Write(filepath.Join(dir, name), strings.NewReader("evil"))
		if !errors.Is(err, sandbox.Unsupported) || !strings.Contains(sandbox.HintOf(err), "--allow-tool-files") {
			t.Errorf("%s: %v, hint %q", name, err, sandbox.HintOf(err))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".git", "hooks", "pre-commit")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the hook is there: %v", err)
	}
	s.AllowToolFiles = true
	if err := s.Write(filepath.Join(dir, "hooks", "pre-commit"), strings.NewReader("mine")); err != nil {
		t.Error(err)
	}
}

// TestWriteByLateLink puts a link to a tool file where the path of a write leads,
// while the write is under way.
func TestWriteByLateLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := OpenDirectories([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Write(filepath.Join(dir, "x", "config"), io.MultiReader(strings.NewReader("evil"), readerFunc(func([]byte) (int, error) {
		_ = os.Remove(filepath.Join(dir, "x"))
		if err := os.Symlink(".git", filepath.Join(dir, "x")); err != nil {
			t.Error(err)
		}
		return 0, io.EOF
	})))
	if !errors.Is(err, sandbox.Invalid) {
		t.Errorf("Write: %v, want %v", err, sandbox.Invalid)
	}
	if _, err := os.Lstat(filepath.Join(dir, ".git", "config")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tool file is there: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestWriteByInnerLink writes by a link of the user's to another directory below
// the allowed one.
func TestWriteByInnerLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "documents"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("documents", filepath.Join(dir, "docs")); err != nil {
		t.Fatal(err)
	}
	s, err := OpenDirectories([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Write(filepath.Join(dir, "docs", "new", "a"), strings.NewReader("a")); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "documents", "new", "a")); err != nil || string(b) != "a" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

// TestWriteRepository writes the files of a Git repository that has another name.
func TestWriteRepository(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenDirectories([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	write := func(name string) error { return s.Write(filepath.Join(dir, name), strings.NewReader("x")) }
	for _, name := range []string{"assets/config", "assets/objects/info/x", "assets/refs/heads/x", "linked/commondir", "HEAD", "objects"} {
		if err := write(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"assets/HEAD", "assets/head", "linked/HEAD", "refs/x"} {
		if err := write(name); !errors.Is(err, sandbox.Unsupported) || !strings.Contains(sandbox.HintOf(err), "--allow-tool-files") {
			t.Errorf("%s: %v, hint %q", name, err, sandbox.HintOf(err))
		}
	}
	// A repository of the user's.
	if err := os.WriteFile(filepath.Join(dir, "assets", "HEAD"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"assets/config", "assets/hooks/post-receive", "assets/objects/info/x"} {
		if err := write(name); !errors.Is(err, sandbox.Unsupported) {
			t.Errorf("into a repository, %s: %v", name, err)
		}
	}
	s.AllowToolFiles = true
	if err := write("assets/config"); err != nil {
		t.Error(err)
	}
}
