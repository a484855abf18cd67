package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestStoppedElsewhere has another process stop a sandbox. The next call of this
// process reports so at once, whichever call it is.
func TestStoppedElsewhere(t *testing.T) {
	for _, rests := range []bool{false, true} {
		t.Run(fmt.Sprintf("Rests=%v", rests), func(t *testing.T) { testStoppedElsewhere(t, rests) })
	}
}

// TestStoppedElsewhereIsShown: a sandbox that another process stops is not
// running any more for this process.
func TestStoppedElsewhereIsShown(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	other := e.mustCreate(t, sandbox.CreateRequest{})
	if err := e.store.StoppingSandbox(t.Context(), s.ID, "the sandbox was stopped on request"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // while it stops, and after
		got, err := e.Get(t.Context(), alice, s.ID)
		if err != nil || got.State != sandbox.Stopped || got.Cause != "the sandbox was stopped on request" {
			t.Errorf("%s, %q, %v", got.State, got.Cause, err)
		}
		list, err := e.List(t.Context(), alice)
		if err != nil || len(list) != 2 || list[0].ID != other.ID || list[1].State != sandbox.Stopped {
			t.Errorf("the list: %+v, %v", list, err)
		}
		if err := e.Stop(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func testStoppedElsewhere(t *testing.T, rests bool) {
	e := openFake(t, t.TempDir(), func(o *Options, _ *fake.Options) {
		if o.RestAfter = time.Hour; rests {
			o.RestAfter = time.Millisecond
		}
	})
	for name, call := range map[string]func(id string) error{
		"Code": func(id string) error {
			_, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: id, Code: "print(1)", Language: "python"})
			return err
		},
		"Context": func(id string) error {
			_, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: id, Code: "print(1)", Language: "python", Context: "c"})
			return err
		},
		"Command": func(id string) error {
			_, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: id, Commands: []string{"true"}})
			return err
		},
		"ReadFile": func(id string) error {
			_, _, err := e.ReadFile(t.Context(), alice, id, "secret.txt", 0, 10)
			return err
		},
		"ListFiles": func(id string) error {
			_, _, err := e.ListFiles(t.Context(), alice, id, ".", 1)
			return err
		},
		"Port": func(id string) error {
			conn, err := e.DialPort(t.Context(), alice, id, 8000)
			if err == nil {
				conn.Close()
			}
			return err
		},
		"Check": func(id string) error {
			_, err := e.Check(t.Context(), alice, id)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := e.mustCreate(t, sandbox.CreateRequest{})
			for b := e.live(s.ID); rests; time.Sleep(time.Millisecond) {
				b.power.Lock()
				paused := b.paused
				b.power.Unlock()
				if paused {
					break
				}
			}
			if err := e.store.StoppingSandbox(t.Context(), s.ID, "the sandbox was stopped on request"); err != nil {
				t.Fatal(err)
			}
			if err := e.live(s.ID).drv.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := call(s.ID)
			if !errors.Is(err, sandbox.Conflict) || errors.Is(err, sandbox.NotFound) || !strings.Contains(err.Error(), "has stopped: the sandbox was stopped on request") {
				t.Errorf("%v, of kind %v", err, sandbox.KindOf(err))
			}
			if hint := sandbox.HintOf(err); !strings.Contains(hint, "make a new sandbox") {
				t.Errorf("the hint is %q", hint)
			}
		})
	}
}
