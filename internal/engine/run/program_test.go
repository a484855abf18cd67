package run

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestNewProgram(t *testing.T) {
	for _, c := range []struct {
		name        string
		req         sandbox.RunRequest
		argv, shell []string
	}{
		{"Argv", sandbox.RunRequest{Argv: []string{"ls", "-l"}}, []string{"ls", "-l"}, nil},
		{"PlainCommand", sandbox.RunRequest{Commands: []string{"ls -l"}}, []string{"ls", "-l"}, []string{"/bin/sh", "-c", "ls -l"}},
		{"ShellCommand", sandbox.RunRequest{Commands: []string{"ls | wc"}}, []string{"/bin/sh", "-c", "ls | wc"}, nil},
		{"Commands", sandbox.RunRequest{Commands: []string{"a", "b"}}, []string{"/bin/sh", "-c", runCommands, "sh", "a", "b"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := NewProgram(c.req, interpreter.Runners())
			if err != nil || p.Runner != nil {
				t.Fatalf("%+v, %v", p, err)
			}
			if diff := cmp.Diff([][]string{c.argv, c.shell}, [][]string{p.Argv, p.shell}); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	if p, err := NewProgram(sandbox.RunRequest{Code: "1", Language: "python", Context: "c"}, interpreter.Runners()); err != nil || p.Runner == nil || !p.context {
		t.Errorf("code in a context: %+v, %v", p, err)
	}
	if _, err := NewProgram(sandbox.RunRequest{Code: "1", Language: "perl", Context: "c"}, interpreter.Runners()); !errors.Is(err, sandbox.Unsupported) {
		t.Errorf("a context of Perl: %v", err)
	}
	if _, err := NewProgram(sandbox.RunRequest{Code: "1", Language: "nothing"}, interpreter.Runners()); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("an unknown language: %v", err)
	}
}

// TestEnviron checks which variable wins, and the bound on all of them.
func TestEnviron(t *testing.T) {
	p, err := NewProgram(sandbox.RunRequest{Argv: []string{"x"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{"A": "sandbox", "B": "sandbox"}
	env, err := p.Environ(sandbox.RunRequest{Env: map[string]string{"B": "run"}}, sandbox.NetworkNone, own)
	if err != nil || env["A"] != "sandbox" || env["B"] != "run" || env["PIP_RETRIES"] != "0" {
		t.Errorf("%v, %v", env, err)
	}
	if env, err := p.Environ(sandbox.RunRequest{}, "example.com", own); err != nil || env["PIP_RETRIES"] != "" || own["B"] != "sandbox" {
		t.Errorf("with a network: %v, %v; the sandbox has %v", env, err, own)
	}
	p.context = true
	if env, err := p.Environ(sandbox.RunRequest{Env: map[string]string{"B": "run"}}, "example.com", own); err != nil || env["B"] != "sandbox" {
		t.Errorf("in a context: %v, %v", env, err)
	}
	long := map[string]string{"LONG": strings.Repeat("x", request.MaxTexts)}
	if _, err := p.Environ(sandbox.RunRequest{}, "example.com", long); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("too long: %v", err)
	}
}
