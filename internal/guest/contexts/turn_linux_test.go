package contexts

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// TestWithdrawnRunLeavesTheMove has a run that is withdrawn when its turn has just
// come: the next run finds the directory and the environment all the same. The test
// is a process of its own, because a process.Set reaps all children of its process.
func TestWithdrawnRunLeavesTheMove(t *testing.T) {
	const inside = "GLOVEBOX_TEST_WITHDRAWN"
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip("python3 is not here")
	}
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	asSelf := os.Geteuid() != 0
	accounts := account.New(account.Config{AsSelf: asSelf})
	processes, err := process.New(process.Config{AsSelf: asSelf}, accounts)
	if err != nil {
		t.Fatal(err)
	}
	s := New(accounts, processes, nil, asSelf, func(string) {}, func(string) {})
	c, err := s.newContext("", &guestapi.ContextRequest{ID: "a", Cwd: "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ensure(nil); err != nil {
		t.Fatal(err)
	}
	if err := c.adopt("/usr", map[string]string{"A": "1"}); err != nil {
		t.Fatal(err)
	}
	eventsOf := func(withdraw bool) string {
		t.Helper()
		x := &run{
			context: c, req: &guestapi.ExecuteRequest{Code: "import os; print(os.getcwd(), os.environ['A'])"},
			news: make(chan struct{}, 1), hurried: make(chan struct{}),
		}
		x.space.L = &x.mu
		<-c.turn
		if err := x.open(nil); err != nil {
			t.Fatal(err)
		}
		x.isWithdrawn = withdraw
		x.start()
		<-c.turn // the run has ended
		c.turn <- struct{}{}
		return string(x.unsent)
	}
	if events := eventsOf(true); !strings.Contains(events, "its turn had just come") {
		t.Errorf("the run that was withdrawn: %s", events)
	}
	if events := eventsOf(false); !strings.Contains(events, "/usr 1") {
		t.Errorf("the next run: %s", events)
	}
	if err := c.end(true, ""); err != nil {
		t.Error(err)
	}
}
