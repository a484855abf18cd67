package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// childEnv makes the test binary be another server on a state directory: it
// has a childOrder as JSON.
const childEnv = "ENGINE_TEST_CHILD"

type childOrder struct {
	Dir      string
	Detached bool
	Command  string
}

// childMain starts a run, prints it when it has written something, and goes on
// until it is killed.
func childMain() int {
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func child() error {
	ctx := context.Background()
	var order childOrder
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &order); err != nil {
		return err
	}
	if err := os.Unsetenv(childEnv); err != nil { // its helpers are helpers
		return err
	}
	drv, err := fake.New(fake.Options{Dir: order.Dir})
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, store.Options{Dir: order.Dir})
	if err != nil {
		return err
	}
	e, err := New(Options{
		Driver: drv, Store: st, StateDir: order.Dir, Detached: order.Detached,
		AllowUnenforced: sandbox.ControlNames(),
	})
	if err != nil {
		return err
	}
	r, err := e.Start(ctx, alice, sandbox.RunRequest{Commands: []string{order.Command}})
	if err != nil {
		return err
	}
	if err := e.Follow(ctx, alice, r.ID, func(sandbox.StreamName, []byte) error { return io.EOF }); err != io.EOF {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	select {}
}

// startChild returns a run of another process, and what kills that.
func startChild(t *testing.T, order childOrder) (sandbox.Run, func()) {
	t.Helper()
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(kill)
	var r sandbox.Run
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, kill
}

func TestKilledServerAttached(t *testing.T) {
	dir := t.TempDir()
	e := openFake(t, dir, nil)
	r, kill := startChild(t, childOrder{Dir: dir, Command: "echo begun; sleep 60"})
	// Beside the other, while it lives: its run can be seen and read.
	if s := e.mustGet(t, r.SandboxID); s.State != sandbox.Running {
		t.Errorf("state %s", s.State)
	}
	if out, err := e.Output(t.Context(), alice, r.ID, 0); err != nil || out.Stdout != "begun\n" {
		t.Errorf("output %q, %v", out.Stdout, err)
	}
	e.mustSweep(t)
	kill()
	for range 100 { // the box goes with its owner
		if refs, err := e.drv.List(t.Context()); err == nil && len(refs) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	e.mustSweep(t)
	if refs, err := e.drv.List(t.Context()); err != nil || len(refs) != 0 {
		t.Errorf("boxes %v, %v", refs, err)
	}
	checkVerdict(t, e.mustWait(t, r.ID), sandbox.SandboxLost, "the process that ran the sandbox died")
	if s := e.mustGet(t, r.SandboxID); s.State != sandbox.Stopped {
		t.Errorf("state %s", s.State)
	}
	if out, err := e.Output(t.Context(), alice, r.ID, 0); err != nil || out.Stdout != "begun\n" {
		t.Errorf("output %q, %v", out.Stdout, err)
	}
}

func TestKilledServerDetached(t *testing.T) {
	dir := t.TempDir()
	r, kill := startChild(t, childOrder{Dir: dir, Detached: true, Command: "for i in 1 2 3 4; do echo $i; sleep 0.5; done; exit 5"})
	kill()
	time.Sleep(700 * time.Millisecond) // it writes on, without a server
	e := openFake(t, dir, func(o *Options, _ *fake.Options) { o.Detached = true })
	e.mustSweep(t)
	var followed string
	err := e.Follow(t.Context(), alice, r.ID, func(_ sandbox.StreamName, data []byte) error {
		followed += string(data)
		return nil
	})
	r = e.mustWait(t, r.ID)
	if err != nil || r.ExitCode == nil || *r.ExitCode != 5 || followed != "1\n2\n3\n4\n" {
		t.Errorf("%+v, %q, %v", r, followed, err)
	}
	if err := e.Stop(t.Context(), alice, r.SandboxID); err != nil {
		t.Fatal(err)
	}
	if refs, err := e.drv.List(t.Context()); err != nil || len(refs) != 0 {
		t.Errorf("boxes %v, %v", refs, err)
	}
}

func TestStopRunOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	e := openFake(t, dir, nil)
	r, _ := startChild(t, childOrder{Dir: dir, Command: "echo begun; sleep 60"})
	got, err := e.StopRun(t.Context(), alice, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	checkVerdict(t, got, sandbox.Cancelled, "on request")
	if err := e.Stop(t.Context(), alice, r.SandboxID); err != nil {
		t.Fatal(err)
	}
	if refs, err := e.drv.List(t.Context()); err != nil || len(refs) != 0 {
		t.Errorf("boxes %v, %v", refs, err)
	}
	if s := e.mustGet(t, r.SandboxID); s.State != sandbox.Stopped {
		t.Errorf("state %s", s.State)
	}
}
