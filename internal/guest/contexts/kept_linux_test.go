package contexts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/contexts"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// waitBusy waits until a context has a run under way.
func (h *host) waitBusy(id string) {
	h.T.Helper()
	for {
		list, err := h.Contexts(h.T.Context())
		if err != nil {
			h.T.Fatal(err)
		}
		for _, c := range list {
			if c.ID == id && c.Busy {
				return
			}
		}
	}
}

// TestKeptRun leaves a run that goes on, and comes back for the rest.
func TestKeptRun(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	ctx, leave := context.WithCancel(t.Context())
	x, err := h.Execute(ctx, "", &guestapi.ExecuteRequest{
		Language: "python", Tag: "a", Stdin: true,
		Code: "print('before')\ninput()\nfor i in range(3000): print('x' * 999)\nleft = 1\n'done'",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for {
		ev, err := x.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Input != nil {
			break
		}
	}
	leave()
	if _, err := x.Next(); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a stream that was left gives %v", err)
	}
	if _, err := h.Execute(t.Context(), "", &guestapi.ExecuteRequest{Language: "python", Tag: "a", Code: "1"}, nil); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a second run of that tag gives %v", err)
	}
	if err := h.ExecutionInput(t.Context(), "a", &guestapi.InputRequest{Text: "go\n"}); err != nil {
		t.Fatal(err)
	}
	x, err = h.ConnectExecution(t.Context(), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := gather(t, x, nil)
	same(t, "output", len(r.stdout), 3_000_000)
	same(t, "result", r.main(), "'done'")
	same(t, "status", r.end.Status, guestapi.EndOK)
	if _, err := h.ConnectExecution(t.Context(), "a", nil); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a run whose end was taken gives %v", err)
	}
	if err := h.InterruptExecution(t.Context(), "a", &guestapi.InterruptRequest{}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("and its interrupt %v", err)
	}
	same(t, "state", h.ends("python", "left", guestapi.EndOK).main(), "1")
}

// TestKeptRunTakenOver has a second caller take the events.
func TestKeptRunTakenOver(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	first := h.eval(&guestapi.ExecuteRequest{Language: "python", Tag: "a", Stdin: true, Code: "input(); print('after')"})
	for ev, err := first.Next(); ev == nil || ev.Input == nil; ev, err = first.Next() {
		if err != nil {
			t.Fatal(err)
		}
	}
	second, err := h.ConnectExecution(t.Context(), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.ExecutionInput(t.Context(), "a", &guestapi.InputRequest{Text: "\n"}); err != nil {
		t.Fatal(err)
	}
	same(t, "output", gather(t, second, nil).stdout, "after\n")
	if ev, err := first.Next(); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("the first caller is given %+v, %v", ev, err)
	}
}

// TestKeptRunsWait checks the queue of a context: whose turn has not come is
// taken out of it, and nobody else is hit.
func TestKeptRunsWait(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	h.ends("python", "import time; n = 0", guestapi.EndOK)
	first := h.eval(&guestapi.ExecuteRequest{Language: "python", Tag: "first", Code: "while True: time.sleep(0.01)"})
	h.waitBusy("default-python")
	waiting := h.eval(&guestapi.ExecuteRequest{Language: "python", Tag: "second", Code: "n += 1"})
	third := h.eval(&guestapi.ExecuteRequest{Language: "python", Tag: "third", Code: "n += 10", TimeoutMillis: 60000})
	if err := h.InterruptExecution(t.Context(), "second", &guestapi.InterruptRequest{}); err != nil {
		t.Fatal(err)
	}
	r := gather(t, waiting, nil)
	if !r.end.Stopped || r.end.StateLost || r.end.Status != guestapi.EndInterrupted || r.count != 0 {
		t.Errorf("the one that waited: %+v", r.end)
	}
	if err := h.InterruptExecution(t.Context(), "first", &guestapi.InterruptRequest{}); err != nil {
		t.Fatal(err)
	}
	if r := gather(t, first, nil); !r.end.Stopped || r.end.StateLost {
		t.Errorf("the one that ran: %+v", r.end)
	}
	same(t, "third", gather(t, third, nil).end.Status, guestapi.EndOK)
	same(t, "n", h.ends("python", "n", guestapi.EndOK).main(), "10")
	// What was taken is forgotten, and so the tags are free.
	for _, tag := range []string{"first", "second", "third"} {
		same(t, tag, gather(t, h.eval(&guestapi.ExecuteRequest{Language: "python", Tag: tag, Code: "n"}), nil).main(), "10")
	}
}

func TestKeptRunsAreBounded(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	var full error
	for i := range contexts.MaxQueue + 2 {
		x, err := h.Execute(t.Context(), "", &guestapi.ExecuteRequest{Language: "python", Tag: fmt.Sprint(i), Code: "import time; time.sleep(60)"}, nil)
		if err != nil {
			full = err
			break
		}
		x.Close()
		if i == 0 {
			h.waitBusy("default-python")
		}
	}
	if sandbox.KindOf(full) != sandbox.Exhausted || !strings.Contains(full.Error(), "wait for context") {
		t.Errorf("too many: %v", full)
	}
	// A context that is removed ends all of them, and of their ends so many
	// are kept.
	if err := h.RemoveContext(t.Context(), "default-python"); err != nil {
		t.Fatal(err)
	}
	var known int
	for i := range contexts.MaxQueue + 1 {
		x, err := h.ConnectExecution(t.Context(), fmt.Sprint(i), nil)
		if errors.Is(err, sandbox.NotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := gather(t, x, nil); r.end.Status != guestapi.EndDied {
			t.Errorf("run %d: %+v", i, r.end)
		}
		known++
	}
	if known == 0 || known > contexts.MaxQueue+1 {
		t.Errorf("%d ends were kept", known)
	}
	if _, err := h.Execute(t.Context(), "", &guestapi.ExecuteRequest{Language: "python", Tag: strings.Repeat("x", 200), Code: "1"}, nil); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a long tag: %v", err)
	}
}
