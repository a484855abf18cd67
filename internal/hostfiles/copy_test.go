package hostfiles

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// lay makes files by their names; what begins with -> is a link.
func lay(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// laid is what lay made.
func laid(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if e.Type()&os.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			files[name] = "->" + target
			return err
		}
		text, err := os.ReadFile(path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCopy(t *testing.T) {
	sandboxes := openEngine(t)
	sb, err := sandboxes.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	host, box := t.TempDir(), t.TempDir() // the fake driver's boxes have this machine's files
	lay(t, host, map[string]string{
		"p/a.txt": "a", "p/d/b.txt": "b", "p/d/in": "->../a.txt", "p/out": "->../../secret", "p/abs": "->/etc/passwd", "p/up": "->..",
		"p/.gitignore": "*.log\n/build/\n!keep.log\n# x\n", "p/x.log": "x", "p/keep.log": "k", "p/build/o": "o", "p/d/build/kept": "y",
		"p/.git/config": "g", "p/d/.gitignore": "deep/**/z\n", "p/d/deep/1/2/z": "z", "p/zeros": strings.Repeat("\x00", 300<<10),
		"secret": "s",
	})
	set, err := OpenDirectories([]string{filepath.Join(host, "p")})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	h := &Copier{Sandboxes: sandboxes, Allowed: set}
	steps := 0
	progress := func(sandbox.Copied) { steps++ }
	n, err := h.CopyIn(t.Context(), sandbox.Local, filepath.Join(host, "p"), sb.ID, filepath.Join(box, "q"), true, progress)
	if err != nil || n.Links != 1 || n.Skipped != 3 || steps == 0 {
		t.Errorf("%+v, %v, %d steps", n, err, steps)
	}
	want := map[string]string{
		"a.txt": "a", "d/b.txt": "b", "d/in": "->../a.txt", ".gitignore": "*.log\n/build/\n!keep.log\n# x\n", "keep.log": "k",
		"d/build/kept": "y", "d/.gitignore": "deep/**/z\n", "zeros": strings.Repeat("\x00", 300<<10),
	}
	if diff := cmp.Diff(want, laid(t, filepath.Join(box, "q"))); diff != "" {
		t.Errorf("copied in (-want +got):\n%s", diff)
	}
	// And out again, where somebody in the sandbox planted links.
	lay(t, filepath.Join(box, "q"), map[string]string{"evil": "->../../../../etc/passwd", "abs": "->/etc/passwd"})
	back := filepath.Join(host, "p", "back")
	lay(t, back, map[string]string{"keep.log": "->../../secret", "a.txt": "old"})
	n, err = h.CopyOut(t.Context(), sandbox.Local, sb.ID, filepath.Join(box, "q")+"/", back, progress)
	if err != nil || n.Links != 1 || n.Skipped != 2 {
		t.Errorf("%+v, %v", n, err)
	}
	if diff := cmp.Diff(want, laid(t, back)); diff != "" {
		t.Errorf("copied out (-want +got):\n%s", diff)
	}
	if _, err := h.CopyOut(t.Context(), sandbox.Local, sb.ID, filepath.Join(box, "q/a.txt"), back, progress); err != nil {
		t.Errorf("a file into a directory: %v", err)
	}
	for what, path := range map[string]string{
		"elsewhere": filepath.Join(host, "secret"), "up": filepath.Join(host, "p", "..", "secret"), "by a link": filepath.Join(host, "p", "up", "secret"),
		"relative": "p", "empty": "", "NUL": host + "/p/a\x00", "a remote URL": "file://server/share", "Windows": `C:\Users\me`,
	} {
		if runtime.GOOS == "windows" && what == "Windows" {
			continue
		}
		if _, err := h.CopyIn(t.Context(), sandbox.Local, path, sb.ID, filepath.Join(box, "z"), false, progress); err == nil || sandbox.KindOf(err) == sandbox.Internal {
			t.Errorf("in from %s: %v", what, err)
		}
		if _, err := h.CopyOut(t.Context(), sandbox.Local, sb.ID, filepath.Join(box, "q/a.txt"), path, progress); err == nil || sandbox.KindOf(err) == sandbox.Internal {
			t.Errorf("out to %s: %v", what, err)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(host, "secret")); string(got) != "s" {
		t.Errorf("the file outside: %q", got)
	}
	none, err := OpenDirectories(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = (&Copier{Sandboxes: sandboxes, Allowed: none}).CopyIn(t.Context(), sandbox.Local, filepath.Join(host, "p"), sb.ID, box, false, progress)
	if !strings.Contains(sandbox.HintOf(err), "--allow-dir") {
		t.Errorf("where nothing is allowed: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	u := "file://" + filepath.ToSlash(filepath.Join(host, "p", "a.txt"))
	if _, err := h.CopyIn(t.Context(), sandbox.Local, u, sb.ID, filepath.Join(box, "by-url"), false, progress); err != nil {
		t.Errorf("by a file URL: %v", err)
	}
}

// TestCopyOutLinks has a program in the sandbox plant links that lead out of the
// copy only by way of each other.
func TestCopyOutLinks(t *testing.T) {
	sandboxes := openEngine(t)
	sb, err := sandboxes.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	host, box := t.TempDir(), t.TempDir() // the fake driver's boxes have this machine's files
	h := &Copier{Sandboxes: sandboxes, Anywhere: true}
	out := func(wantSkipped int) {
		t.Helper()
		n, err := h.CopyOut(t.Context(), sandbox.Local, sb.ID, box, filepath.Join(host, "out"), func(sandbox.Copied) {})
		if err != nil || n.Skipped != wantSkipped {
			t.Errorf("%+v, %v; want %d skipped", n, err, wantSkipped)
		}
	}
	lay(t, box, map[string]string{"a/b/top": "->../..", "far": "->a/b/top/../../secret", "near": "->./a/../a", "a/b/f": "f", "fine": "->./a//b/f"})
	out(2)
	want := map[string]string{"a/b/top": "->../..", "a/b/f": "f", "fine": "->./a//b/f"}
	if diff := cmp.Diff(want, laid(t, filepath.Join(host, "out"))); diff != "" {
		t.Errorf("copied out (-want +got):\n%s", diff)
	}
	// What was a link is a directory now, and there is a link in it.
	if err := os.Remove(filepath.Join(box, "a/b/top")); err != nil {
		t.Fatal(err)
	}
	lay(t, box, map[string]string{"a/b/top/far": "->../../../secret", "a/b/top/near": "->../f"})
	out(5) // and the directory itself
	if diff := cmp.Diff(want, laid(t, filepath.Join(host, "out"))); diff != "" {
		t.Errorf("copied out again (-want +got):\n%s", diff)
	}
}

// TestCopyOutToolFiles has a program in the sandbox plant what programs on this
// machine execute or obey, under its name and under others that it may have.
func TestCopyOutToolFiles(t *testing.T) {
	sandboxes := openEngine(t)
	sb, err := sandboxes.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	box := t.TempDir() // the fake driver's boxes have this machine's files
	planted := map[string]string{
		".git/config": "[core]\nfsmonitor = evil", ".git/hooks/pre-commit": "evil", ".envrc": "evil", "sub/.vscode/tasks.json": "evil",
		"sub/.GIT/config": "evil", "sub/.g\u200cit/config": "evil", "sub/.git./config": "evil", "git~1/config": "evil", ".npmrc": "evil", ".mcp.json": "->a.txt",
	}
	lay(t, box, planted)
	fine := map[string]string{"a.txt": "a", ".gitignore": "x", "sub/git": "x", "envrc": "x", "hooks/pre-commit": "x"}
	lay(t, box, fine)
	for _, c := range []struct {
		name            string
		allowed, person bool
	}{{"Refused", false, false}, {"Allowed", true, false}, {"Person", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			host := t.TempDir()
			set, err := OpenDirectories([]string{host})
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			set.AllowToolFiles = c.allowed
			// What is the user's, and where links lead to it.
			lay(t, host, map[string]string{".git/config": "mine", "hooks": "->.git/hooks", "link": "->.git", ".git/hooks/pre-commit": "mine"})
			h := &Copier{Sandboxes: sandboxes, Allowed: set, Anywhere: c.person}
			copyOut := func(from, to string) (sandbox.Copied, error) {
				return h.CopyOut(t.Context(), sandbox.Local, sb.ID, filepath.Join(box, from), filepath.Join(host, to), func(sandbox.Copied) {})
			}
			refused := !c.allowed && !c.person
			n, err := copyOut("", "")
			if c.person { // whose sandboxes they are, says the path of the directory
				n, err = copyOut("", ".")
			}
			if err != nil || n.Refused != refused || n.Skipped != 2 || len(n.ToolFiles) != 9 || !slices.Contains(n.ToolFiles, ".git") || !slices.Contains(n.ToolFiles, "sub/.GIT") {
				t.Errorf("%+v, %v", n, err)
			}
			want := map[string]string{
				"a.txt": "a", ".gitignore": "x", "sub/git": "x", "envrc": "x", "hooks": "->.git/hooks", "link": "->.git",
				".git/config": "mine", ".git/hooks/pre-commit": "mine",
			}
			if !refused {
				for name, text := range planted {
					want[name] = text
				}
			}
			if diff := cmp.Diff(want, laid(t, host)); diff != "" {
				t.Errorf("copied out (-want +got):\n%s", diff)
			}
			for from, to := range map[string]string{
				"a.txt": ".git/hooks/post-checkout", ".envrc": "d", "sub/git": "hooks/post-merge", "envrc": "link/hooks/post-merge", "sub": ".git/sub",
			} {
				if to == "d" {
					lay(t, host, map[string]string{"d/x": "x"})
				}
				n, err := copyOut(from, to)
				if refused != (err != nil) || refused && (sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(sandbox.HintOf(err), "--allow-tool-files")) {
					t.Errorf("%s to %s: %+v, %v (hint: %s)", from, to, n, err, sandbox.HintOf(err))
				}
			}
		})
	}
}

// TestCopyOutLateLink copies a tree to a directory that is missing, and puts a
// link to the user's .git there while the copy is under way.
func TestCopyOutLateLink(t *testing.T) {
	for _, person := range []bool{false, true} { // by another copy, or by the user
		sandboxes := openEngine(t)
		sb, err := sandboxes.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Workspace: "w"})
		if err != nil {
			t.Fatal(err)
		}
		host, box := t.TempDir(), t.TempDir() // the fake driver's boxes have this machine's files
		lay(t, box, map[string]string{"one/config": "evil", "one/d/description": "evil", "two/x": "->.git", "two/y": "->./sub/../.git", "two/z": "->sub", "two/sub/up": "->../.GIT/hooks"})
		lay(t, host, map[string]string{".git/config": "mine"})
		set, err := OpenDirectories([]string{host})
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		h := &Copier{Sandboxes: sandboxes, Allowed: set}
		planted := false
		_, err = h.CopyOut(t.Context(), sandbox.Local, sb.ID, filepath.Join(box, "one"), filepath.Join(host, "x"), func(sandbox.Copied) {
			if planted {
				return
			}
			planted = true
			if person {
				if err := os.Symlink(".git", filepath.Join(host, "x")); err != nil {
					t.Error(err)
				}
				return
			}
			n, err := h.CopyOut(t.Context(), sandbox.Local, sb.ID, filepath.Join(box, "two"), host, func(sandbox.Copied) {})
			if want := []string{".git", "sub/.git"}; err != nil || !n.Refused || n.Links != 1 || len(n.ToolFiles) == 0 {
				t.Errorf("the copy with links: %+v, %v; want %q refused", n, err, want)
			}
		})
		want := map[string]string{".git/config": "mine", "x/config": "evil", "x/d/description": "evil", "z": "->sub"}
		if person {
			want = map[string]string{".git/config": "mine", "x": "->.git"}
			if !errors.Is(err, sandbox.Invalid) {
				t.Errorf("the copy by a late link: %v, want %v", err, sandbox.Invalid)
			}
		} else if err != nil {
			t.Errorf("the copy: %v", err)
		}
		if diff := cmp.Diff(want, laid(t, host)); diff != "" {
			t.Errorf("by the user %t (-want +got):\n%s", person, diff)
		}
	}
}

// TestCopyOutRepository has a program in the sandbox plant a Git repository under
// a name of its own, at once and in parts.
func TestCopyOutRepository(t *testing.T) {
	sandboxes := openEngine(t)
	sb, err := sandboxes.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	box := t.TempDir() // the fake driver's boxes have this machine's files
	repository := map[string]string{"HEAD": "ref: refs/heads/x", "config": "[core]\nfsmonitor = evil", "objects/x": "x", "refs/heads/x": "x", "hooks/x": "evil"}
	lay(t, filepath.Join(box, "whole/assets"), repository)
	lay(t, box, map[string]string{
		"whole/a.txt": "a", "whole/src/HEAD": "h", "whole/src/refs": "r",
		"part1/assets/objects/x": "x", "part1/assets/config": "evil", "part2/assets/HEAD": "h", "part2/b.txt": "b", "part3/refs/x": "x",
		"tree/HEAD": "h", "tree/commondir": "../c",
	})
	for _, c := range []struct {
		name            string
		allowed, person bool
	}{{"Refused", false, false}, {"Allowed", true, false}, {"Person", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			host := t.TempDir()
			set, err := OpenDirectories([]string{host})
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			set.AllowToolFiles = c.allowed
			refused := !c.allowed && !c.person
			h := &Copier{Sandboxes: sandboxes, Allowed: set, Anywhere: c.person}
			copyOut := func(from, to string, during func()) (sandbox.Copied, error) {
				return h.CopyOut(t.Context(), sandbox.Local, sb.ID, filepath.Join(box, from), filepath.Join(host, to), func(sandbox.Copied) { during() })
			}
			nothing := func() {}
			lay(t, host, map[string]string{"p/x": "x", "q/x": "x"})
			n, err := copyOut("whole", "w", nothing)
			if err != nil || n.Refused != refused || !slices.Equal(n.ToolFiles, []string{"w/assets"}) && !slices.Equal(n.ToolFiles, []string{"assets"}) {
				t.Errorf("the whole: %+v, %v", n, err)
			}
			want := map[string]string{"a.txt": "a", "src/HEAD": "h", "src/refs": "r"}
			if !refused {
				for name, text := range repository {
					want["assets/"+name] = text
				}
			}
			if diff := cmp.Diff(want, laid(t, filepath.Join(host, "w"))); diff != "" {
				t.Errorf("copied out (-want +got):\n%s", diff)
			}
			// In parts: the last one makes it a repository.
			for _, part := range []string{"part1/assets", "part3"} {
				if n, err := copyOut(part, "p/assets", nothing); err != nil || n.Refused {
					t.Errorf("%s: %+v, %v", part, n, err)
				}
			}
			if n, err := copyOut("part2", "p", nothing); err != nil || n.Refused != refused || n.Files != 1 && refused {
				t.Errorf("the last part: %+v, %v", n, err)
			}
			if _, err := os.Lstat(filepath.Join(host, "p/assets/HEAD")); refused != errors.Is(err, os.ErrNotExist) {
				t.Errorf("the repository: %v", err)
			}
			_, err = copyOut("whole/assets/HEAD", "p/assets/HEAD", nothing)
			if refused != errors.Is(err, sandbox.Unsupported) {
				t.Errorf("the last file: %v", err)
			}
			if _, err = copyOut("tree", "t", nothing); err != nil && !refused || refused && !errors.Is(err, sandbox.Unsupported) {
				t.Errorf("a repository with its parts elsewhere: %v", err)
			}
			// The other half comes while the copy is under way.
			lay(t, host, map[string]string{"q/assets/objects/x": "x"})
			once := false
			_, err = copyOut("part2", "q", func() {
				if !once {
					once = true
					if n, err := copyOut("part3", "q/assets", nothing); err != nil || n.Refused {
						t.Errorf("the other half: %+v, %v", n, err)
					}
				}
			})
			if refused != errors.Is(err, sandbox.Unsupported) {
				t.Errorf("two halves at a time: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(host, "q/assets/HEAD")); refused != errors.Is(err, os.ErrNotExist) {
				t.Errorf("the repository of two halves: %v", err)
			}
		})
	}
}

// TestCopyOutIsBounded has a sandbox send more than it may hold, and break off.
// Nothing of such a copy is left.
func TestCopyOutIsBounded(t *testing.T) {
	sandboxes := openEngine(t)
	box := t.TempDir()
	lay(t, box, map[string]string{"t/a.txt": "new", "t/b/c.txt": "new"})
	for name, size := range map[string]int64{"huge": 20 << 30, "t/z": 40 << 20} {
		f, err := os.Create(filepath.Join(box, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for _, workspace := range []string{"", "w"} {
		sb, err := sandboxes.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Workspace: workspace, Limits: sandbox.Limits{DiskBytes: 36 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		host := t.TempDir()
		lay(t, host, map[string]string{"huge": "old", "t/a.txt": "old"})
		set, err := OpenDirectories([]string{host})
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		h := &Copier{Sandboxes: sandboxes, Allowed: set, WorkspaceBytes: 8 << 20}
		want := laid(t, host)
		var most int64
		progress := func(n sandbox.Copied) { most = max(most, n.Bytes) }
		n, err := h.CopyOut(t.Context(), sandbox.Local, sb.ID, filepath.Join(box, "huge"), filepath.Join(host, "huge"), progress)
		if sandbox.KindOf(err) != sandbox.Exhausted || n.Bytes != 0 {
			t.Errorf("workspace %q, a huge file: %+v, %v", workspace, n, err)
		}
		n, err = h.CopyOut(t.Context(), sandbox.Local, sb.ID, filepath.Join(box, "t"), filepath.Join(host, "t"), progress)
		if workspace == "" {
			if sandbox.KindOf(err) != sandbox.Exhausted || !strings.Contains(sandbox.HintOf(err), "parts") || most > 36<<20 {
				t.Errorf("a tree: %+v, %v (hint: %s)", n, err, sandbox.HintOf(err))
			}
			if diff := cmp.Diff(want, laid(t, host)); diff != "" {
				t.Errorf("what was there (-want +got):\n%s", diff)
			}
			continue
		}
		// What the workspace may hold counts as well.
		if err != nil || n.Files != 3 || n.Bytes != 40<<20+6 {
			t.Errorf("with a workspace: %+v, %v", n, err)
		}
		if left, err := filepath.Glob(filepath.Join(host, ".glovebox-*")); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	}
}
