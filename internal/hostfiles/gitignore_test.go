package hostfiles

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/safepath"
)

// ignoreCases are the hard cases of gitignore(5): the files of a tree, and the
// files that git leaves out. A name in files that ends in .gitignore has rules.
var ignoreCases = map[string]struct {
	files   map[string]string
	ignored []string
}{
	"order": {
		map[string]string{".gitignore": "*.log\n!keep.log\nkeep.log\n!last.log\n", "a.log": "", "keep.log": "", "last.log": "", "d/last.log": ""},
		[]string{"a.log", "keep.log"},
	},
	"negation": {
		map[string]string{".gitignore": "/*\n!/d\n/d/*\n!/d/keep\n", "a": "", "d/keep": "", "d/b": "", "d/c/keep": ""},
		[]string{".gitignore", "a", "d/b", "d/c/keep"},
	},
	"negation below an ignored directory": {
		map[string]string{".gitignore": "build/\n!build/keep\n", "build/keep": "", "build/x": "", "d/.gitignore": "!x\n", ".git2": ""},
		[]string{"build/keep", "build/x"},
	},
	"a nested file below an ignored directory": {
		map[string]string{".gitignore": "out\n", "out/.gitignore": "!keep\n", "out/keep": ""},
		[]string{"out/.gitignore", "out/keep"},
	},
	"double star": {
		map[string]string{
			".gitignore": "**/front\nback/**\nx/***/y\na**b\n**/n/m\n",
			"front":      "", "d/front": "", "back/f": "", "back/d/f": "", "d/back/f": "", "x/y": "", "x/1/y": "", "x/1/2/y": "", "z/x/y": "",
			"a1b": "", "a/b": "", "d/axb": "", "n/m": "", "d/n/m": "", "back2": "",
		},
		[]string{"front", "d/front", "back/f", "back/d/f", "x/y", "x/1/y", "x/1/2/y", "a1b", "d/axb", "n/m", "d/n/m"},
	},
	"double star that is no part": {
		map[string]string{".gitignore": "a/**b\nc/d**/e\n", "a/xb": "", "a/x/b": "", "c/d/e": "", "c/dx/e": ""},
		[]string{"a/xb", "c/d/e", "c/dx/e"},
	},
	"double star and negation": {
		map[string]string{".gitignore": "back/**\n!back/**/\n!back/**/keep\n", "back/a": "", "back/keep": "", "back/d/a": "", "back/d/keep": ""},
		[]string{"back/a", "back/d/a"},
	},
	"double star for directories only": {
		map[string]string{".gitignore": "**/\n", "a": "", "d/b": ""},
		[]string{"d/b"},
	},
	"anchored": {
		map[string]string{".gitignore": "/top\nd/mid\nany\n", "top": "", "e/top": "", "d/mid": "", "e/d/mid": "", "any": "", "e/any": ""},
		[]string{"top", "d/mid", "any", "e/any"},
	},
	"trailing slash": {
		map[string]string{".gitignore": "dir/\nd/sub/\n", "dir/x": "", "e/dir": "", "f/dir/x": "", "d/sub/x": "", "e/d/sub/x": ""},
		[]string{"dir/x", "f/dir/x", "d/sub/x"},
	},
	"nested files": {
		map[string]string{
			".gitignore": "*.o\n/top\n", "a.o": "", "d/.gitignore": "!keep.o\n/top\nlow/x\n*.t\n", "d/a.o": "", "d/keep.o": "", "d/e/keep.o": "",
			"d/top": "", "d/e/top": "", "d/low/x": "", "low/x": "", "a.t": "", "d/e/a.t": "", "e/keep.o": "", "d2/keep.o": "",
		},
		[]string{"a.o", "d/a.o", "d/top", "d/low/x", "d/e/a.t", "e/keep.o", "d2/keep.o"},
	},
	"escapes": {
		map[string]string{
			".gitignore": "# no rule\n\\#hash\n\\!bang\nblank\\ \ncut  \nstar\\*\nq\\?\n\\a\nback\\\\slash\nend\\\n",
			"# no rule":  "", "#hash": "", "!bang": "", "blank ": "", "blank": "", "cut": "", "cut  ": "", "star*": "", "starx": "", "q?": "", "qx": "",
			"a": "", `back\slash`: "", "end": "", `end\`: "",
		},
		[]string{"#hash", "!bang", "blank ", "cut", "star*", "q?", "a", `back\slash`},
	},
	"blanks inside and in front": {
		map[string]string{".gitignore": " front\nin side\ntab\t\n", " front": "", "front": "", "in side": "", "tab": "", "tab\t": ""},
		[]string{" front", "in side", "tab\t"},
	},
	"several blanks at the end": {
		map[string]string{".gitignore": "a\\  \nb \\ \n", "a ": "", "a": "", "b  ": "", "b": ""},
		[]string{"a ", "b  "},
	},
	"ends of lines": {
		map[string]string{".gitignore": "a\r\nb\r\nc", "a": "", "b": "", "c": "", "d": ""},
		[]string{"a", "b", "c"},
	},
	"byte order mark": {
		map[string]string{".gitignore": "\ufeffa\nb\n", "a": "", "b": ""},
		[]string{"a", "b"},
	},
	"classes": {
		map[string]string{
			".gitignore": "[ab]1\n[!ab]2\n[^ab]3\n[a-c]4\n[[:digit:]]5\n[]]6\n[]-]7\n[\\]]8\n[a9\nx[/]y\n",
			"a1":         "", "c1": "", "a2": "", "c2": "", "a3": "", "c3": "", "b4": "", "d4": "", "15": "", "x5": "", "]6": "", "-7": "", "]8": "",
			"[a9": "", "a9": "", "x/y": "",
		},
		[]string{"a1", "c2", "c3", "b4", "15", "]6", "-7", "]8"},
	},
	"wildcards": {
		map[string]string{".gitignore": "*\n!*/\n!*.go\n!.gitignore\n", "a.go": "", "a.c": "", "d/b.go": "", "d/b.c": "", ".hidden": ""},
		[]string{"a.c", "d/b.c", ".hidden"},
	},
	"wildcards end at a slash": {
		map[string]string{".gitignore": "d/*.c\ne/?/f\n", "d/a.c": "", "d/e/a.c": "", "e/1/f": "", "e/12/f": "", "e//f": ""},
		[]string{"d/a.c", "e/1/f"},
	},
	"empty patterns": {
		map[string]string{".gitignore": "\n/\n!\n//\n   \n!/\n", "a": "", "d/a": ""},
		nil,
	},
	"two slashes": {
		map[string]string{".gitignore": "a//\n//b\nc//d\n", "a/x": "", "b": "", "c/d": ""},
		nil,
	},
	"a later rule for a directory": {
		map[string]string{".gitignore": "node_modules\n!node_modules/\n", "node_modules/x": "", "d/node_modules": ""},
		[]string{"d/node_modules"},
	},
	"git itself": {
		map[string]string{".gitignore": ".*\n!.*\n", ".env": "", "d/.env": ""},
		nil,
	},
	"a file is no directory": {
		map[string]string{".gitignore": "a/b\n", "a": "", "d/a/b": ""},
		nil,
	},
	"letters": {
		map[string]string{".gitignore": "A\nü?\n[ä-ö]\n", "a": "", "A": "", "üx": "", "ä": ""},
		[]string{"A", "üx"},
	},
}

// walkIgnored returns the files of a tree that the rules leave out.
func walkIgnored(t *testing.T, dir string) []string {
	t.Helper()
	tree, err := safepath.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	g := &ignoring{}
	g.read(tree, ".")
	var ignored []string
	err = tree.Walk(t.Context(), maxCopyFiles, func(f *safepath.Entry) error {
		out := g.ignores(f.Path, f.Mode.IsDir())
		switch {
		case out && !f.Mode.IsDir() && !strings.HasPrefix(f.Path, ".git/"):
			ignored = append(ignored, f.Path)
		case !out && f.Mode.IsDir():
			g.read(tree, f.Path)
		case !out && strings.HasPrefix(f.Path, ".git/"):
			t.Errorf("%s is not left out", f.Path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ignored)
	return ignored
}

// gitIgnored returns the files of a tree that git leaves out, or nil without
// git.
func gitIgnored(t *testing.T, dir string, files []string) []string {
	t.Helper()
	run := func(in string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "core.excludesFile=/dev/null"}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState.ExitCode() != 1 { // 1 is no match
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("", "init", "-q")
	out := run(strings.Join(files, "\x00"), "check-ignore", "-z", "--no-index", "--stdin")
	ignored := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	slices.Sort(ignored)
	return slices.DeleteFunc(ignored, func(s string) bool { return s == "" })
}

// TestIgnore compares the rules with the table, and the table with git.
func TestIgnore(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems refuse or change some names of the table")
	}
	_, noGit := exec.LookPath("git")
	for name, c := range ignoreCases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, text := range c.files {
				p := filepath.Join(dir, f)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want := slices.Sorted(slices.Values(c.ignored))
			if noGit == nil {
				var files []string
				for f := range maps.Keys(c.files) {
					files = append(files, filepath.Clean(f))
				}
				if got := gitIgnored(t, dir, files); !slices.Equal(got, want) {
					t.Errorf("git leaves out %q; the table has %q", got, want)
				}
			}
			if got := walkIgnored(t, dir); !slices.Equal(got, want) {
				t.Errorf("left out %q, want %q", got, want)
			}
		})
	}
}
