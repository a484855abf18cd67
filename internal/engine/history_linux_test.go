package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestHistory(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	list := func(limit int) (text string) {
		t.Helper()
		runs, err := e.Runs(t.Context(), alice, s.ID, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			code := "-"
			if r.ExitCode != nil {
				code = fmt.Sprint(*r.ExitCode)
			}
			text += fmt.Sprintf("%s %s %s|", r.Status, r.Verdict.Code, code)
		}
		return text
	}
	if got := list(0); got != "" {
		t.Errorf("a fresh sandbox: %s", got)
	}
	e.mustRun(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"true"}})
	e.mustRun(t, sandbox.RunRequest{SandboxID: s.ID, Commands: []string{"exit 7"}})
	e.mustRun(t, sandbox.RunRequest{Argv: []string{"true"}}) // elsewhere
	going := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "60"}})
	if got, want := list(0), "finished ok 0|finished failed 7|running  -|"; got != want {
		t.Errorf("history %s, want %s", got, want)
	}
	if got, want := list(2), "finished failed 7|running  -|"; got != want {
		t.Errorf("the last two %s, want %s", got, want)
	}
	if err := e.Stop(t.Context(), alice, s.ID); err != nil {
		t.Fatal(err)
	}
	e.mustWait(t, going.ID)
	if got, want := list(0), "finished ok 0|finished failed 7|finished cancelled -|"; got != want {
		t.Errorf("history of a stopped sandbox %s, want %s", got, want)
	}
	last := func(p sandbox.Principal, limit int) (text string) {
		t.Helper()
		runs, err := e.LastRuns(t.Context(), p, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			text += fmt.Sprintf("%s %s %.4s|", r.Status, r.Verdict.Code, r.Program)
		}
		return text
	}
	if got, want := last(alice, 0), "finished cancelled slee|finished ok true|finished failed exit|finished ok true|"; got != want {
		t.Errorf("the last runs of all sandboxes %s, want %s", got, want)
	}
	if got, want := last(alice, 1), "finished cancelled slee|"; got != want {
		t.Errorf("the last run %s, want %s", got, want)
	}
	if got := last("bob", 0); got != "" {
		t.Errorf("another principal has the runs %s", got)
	}
	if _, err := e.LastRuns(t.Context(), "", 0); !errors.Is(err, sandbox.Unauthenticated) {
		t.Errorf("the last runs of nobody: %v", err)
	}
	if _, err := e.LastRuns(t.Context(), alice, -1); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("the last -1 runs: %v", err)
	}
	for name, ask := range map[string]struct {
		p     sandbox.Principal
		id    string
		limit int
		want  sandbox.Kind
	}{
		"another's": {"bob", s.ID, 0, sandbox.NotFound},
		"nobody":    {"", s.ID, 0, sandbox.Unauthenticated},
		"no name":   {alice, "x", 0, sandbox.NotFound},
		"negative":  {alice, s.ID, -1, sandbox.Invalid},
	} {
		if runs, err := e.Runs(t.Context(), ask.p, ask.id, ask.limit); !errors.Is(err, ask.want) || runs != nil {
			t.Errorf("%s: %v, %v; want %s", name, runs, err, ask.want)
		}
	}
}
