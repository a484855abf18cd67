package engine

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPlainCommands has commands that need no shell end as they would with one,
// which is asked for by a semicolon.
func TestPlainCommands(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	for _, tc := range []struct {
		command string
		code    int
		says    string // on either stream
	}{
		{"printenv PWD", 0, "/"},
		{"no-such-program a", verdict.ExitNotFound, "not found"},
		{"./no-such-program", verdict.ExitNotFound, "no-such-program"},
		{"/usr", verdict.ExitNotExecutable, "/usr"},
		{"./script a 'b c'", 3, "2 b c\n"},
		{"/bin/sh -c 'kill -ABRT $$'", verdict.ExitSignal + 6, ""},
		{"/bin/sh -c 'kill -SEGV $$'", verdict.ExitSignal + 11, ""},
		{"python3 -c 'import os; os.abort()'", verdict.ExitSignal + 6, ""},
	} {
		if tc.code == 3 { // without a line that says what runs it
			r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Commands: []string{`echo 'echo $# "$2"; exit 3' > script; chmod +x script`}})
			checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
		}
		for _, command := range []string{tc.command, tc.command + "; exit $?"} {
			if plain := request.PlainWords(command) != nil; plain != (command == tc.command) {
				t.Fatalf("%q needs no shell: %t", command, plain)
			}
			r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Commands: []string{command}})
			r = e.mustWait(t, r.ID)
			out, err := e.Output(t.Context(), alice, r.ID, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if r.ExitCode == nil || *r.ExitCode != tc.code || !strings.Contains(out.Stdout+out.Stderr, tc.says) {
				t.Errorf("%q: exit code %v, %q %q, %+v; want %d and %q", command, r.ExitCode, out.Stdout, out.Stderr, r.Verdict, tc.code, tc.says)
			}
		}
	}
}
