package interpreter

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// programs print the same in every language, and take an argument.
var programs = map[string]string{
	"python":     "import sys\nprint('got ' + sys.argv[1])\n",
	"javascript": "console.log('got ' + process.argv[2])\n",
	"typescript": "const s: string = process.argv[2]\nconsole.log('got ' + s)\n",
	"bash":       "[[ -n $1 ]] && echo \"got $1\"\n",
	"sh":         "echo \"got $1\"\n",
	"go":         "package main\n\nimport (\"fmt\"; \"os\")\n\nfunc main() { fmt.Println(\"got \" + os.Args[1]) }\n",
	"rust":       "fn main() { println!(\"got {}\", std::env::args().nth(1).unwrap()); }\n",
	"c":          "#include <stdio.h>\nint main(int c, char **v) { printf(\"got %s\\n\", v[1]); }\n",
	"c++":        "#include <iostream>\nint main(int c, char **v) { std::cout << \"got \" << v[1] << std::endl; }\n",
	"java":       "public class Any { public static void main(String[] a) { System.out.println(\"got \" + a[0]); } }\n",
	"ruby":       "puts \"got #{ARGV[0]}\"\n",
	"php":        "<?php echo \"got $argv[1]\\n\";\n",
	"perl":       "print \"got $ARGV[0]\\n\";\n",
	"lua":        "print('got ' .. arg[1])\n",
	"r":          "cat('got', commandArgs(trailingOnly=TRUE)[1], '\\n')\n",
	"julia":      "println(\"got \", ARGS[1])\n",
}

func hostExec(ctx context.Context, argv []string) (int, error) {
	err := exec.CommandContext(ctx, argv[0], argv[1:]...).Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	case errors.Is(err, exec.ErrNotFound):
		return 0, sandbox.Errorf(sandbox.NotFound, "%w", err)
	}
	return 0, err
}

// TestRunners runs a program by every variant that works on this machine, so
// the table is wrong nowhere that it can be tried.
func TestRunners(t *testing.T) {
	var worked []string
	for _, r := range Runners() {
		t.Run(r.Language, func(t *testing.T) {
			code, ok := programs[r.Language]
			if !ok {
				t.Fatal("no program for this language")
			}
			for i, v := range r.Variants {
				works, err := v.Works(t.Context(), hostExec)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := exec.LookPath(v.Command[0]); !works || err != nil {
					t.Logf("variant %d, %s, is not here", i, v.Command[0])
					continue
				}
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, r.FileName()), []byte(code), 0o600); err != nil {
					t.Fatal(err)
				}
				const arg = `a "b" $(id) 'c'`
				argv := v.Argv(dir, r.FileName(), []string{arg})
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.Dir = t.TempDir()
				cmd.Env = os.Environ()
				for name, value := range r.Environ(cmd.Dir) {
					cmd.Env = append(cmd.Env, name+"="+value)
				}
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if got := strings.TrimSpace(string(out)); err != nil || got != "got "+arg {
					t.Errorf("variant %d, %q: %q, %v\n%s", i, argv, got, err, &stderr)
				}
				worked = append(worked, r.Language)
			}
		})
	}
	if len(worked) == 0 && runtime.GOOS != "windows" {
		t.Error("no runner works on this machine, not even sh")
	}
	t.Logf("ran: %v", worked)
}

func TestTable(t *testing.T) {
	names := map[string]string{}
	for _, r := range Runners() {
		for _, n := range append([]string{r.Language}, r.Aliases...) {
			if by, ok := names[n]; ok || n != strings.ToLower(n) {
				t.Errorf("%s: name %q is not lower-case or is already that of %s", r.Language, n, by)
			}
			names[n] = r.Language
			if got, err := Runners().Find(strings.ToUpper(n)); err != nil || got.Language != r.Language {
				t.Errorf("Find(%q) = %s, %v; want %s", n, got.Language, err, r.Language)
			}
		}
		if r.Extension == "" || r.Package == "" || r.Image == "" || len(r.Variants) == 0 {
			t.Errorf("%s is incomplete: %+v", r.Language, r)
		}
		for _, v := range r.Variants {
			joined := strings.Join(v.Command, "\x00")
			if !strings.Contains(joined, language.PlaceFile) && !strings.Contains(joined, "main."+r.Extension) {
				t.Errorf("%s: %q does not name the file", r.Language, v.Command)
			}
		}
	}
}

func TestFindUnknown(t *testing.T) {
	_, err := Runners().Find(strings.Repeat("x", 1000))
	if !errors.Is(err, sandbox.Invalid) || !strings.Contains(sandbox.HintOf(err), "python") || len(err.Error()) > 100 {
		t.Errorf("%v (hint %q)", err, sandbox.HintOf(err))
	}
}

func TestArgv(t *testing.T) {
	v := Variant{Command: []string{"p", "-x", language.PlaceFile, language.PlaceDir}}
	// A caller's argument that looks like a place stays what it is.
	got := v.Argv("/d", "main.py", []string{"{file}", "b"})
	if d := cmp.Diff([]string{"p", "-x", "/d/main.py", "/d", "{file}", "b"}, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestMissing(t *testing.T) {
	r, err := Runners().Find("py")
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{sandbox.ImageHost: "apt-get install python3", "alpine": "python:3-slim"} {
		err := r.Missing(image)
		if !errors.Is(err, sandbox.Unsupported) || !strings.Contains(sandbox.HintOf(err), want) {
			t.Errorf("%s: %v (hint %q)", image, err, sandbox.HintOf(err))
		}
	}
}

func TestWorks(t *testing.T) {
	ctx := t.Context()
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		v    Variant
		code int
		err  error
		want bool
		fail error
	}{
		{"Nothing", Variant{}, 1, broken, true, nil},
		{"Found", Variant{Detect: []string{"a"}}, 0, nil, true, nil},
		{"NotFound", Variant{Detect: []string{"a"}}, 1, nil, false, nil},
		{"ProbeMissing", Variant{Probe: []string{"a"}}, 0, sandbox.Errorf(sandbox.NotFound, "a"), false, nil},
		{"ProbeFails", Variant{Probe: []string{"a"}}, 9, nil, false, nil},
		{"Error", Variant{Probe: []string{"a"}}, 0, broken, false, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.v.Works(ctx, func(context.Context, []string) (int, error) { return c.code, c.err })
			if got != c.want || !errors.Is(err, c.fail) {
				t.Errorf("= %v, %v; want %v, %v", got, err, c.want, c.fail)
			}
		})
	}
}
