package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (e *Engine) mustDial(tb testing.TB, id string) net.Conn {
	tb.Helper()
	// What is dialled outlives the context of its dial.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := e.DialPort(ctx, alice, id, 8000)
	if err != nil {
		tb.Fatalf("dial port: %v", err)
	}
	return c
}

func wantEnded(tb testing.TB, c net.Conn, why string) {
	tb.Helper()
	if n, err := c.Read(make([]byte, 1)); err == nil {
		tb.Errorf("%s: a connection gave %d bytes; want it to have ended", why, n)
	}
}

// TestPortIsUse: a connection keeps its sandbox awake and alive, and ends with
// it.
func TestPortIsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: 10 * time.Second}})
		c := e.mustDial(t, s.ID)
		time.Sleep(time.Minute)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Running || w.only(t).isPaused() {
			t.Fatalf("a sandbox with a connection is %s, paused %t", got.State, w.only(t).isPaused())
		}
		go io.WriteString(c, "echo")
		got := make([]byte, 4)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "echo" {
			t.Errorf("through the connection: %q, %v", got, err)
		}
		c.Close()
		c.Close() // again does nothing
		time.Sleep(time.Second)
		if !w.only(t).isPaused() {
			t.Error("a sandbox that nothing uses is not paused")
		}
		c = e.mustDial(t, s.ID) // wakes it
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		wantEnded(t, c, "the sandbox hibernates")
		c = e.mustDial(t, s.ID)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Running {
			t.Errorf("a sandbox that hibernated is %s when its port is dialled", got.State)
		}
		if err := e.Stop(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		wantEnded(t, c, "the sandbox was stopped")
		c.Close()
		if _, err := e.DialPort(t.Context(), alice, s.ID, 8000); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("dial a port of a stopped sandbox: %v; want conflict", err)
		}
	})
}

// TestPortListensLate: a program that was paused before it listened has time to
// listen after the dial that resumes its sandbox.
func TestPortListensLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		rest := func() {
			t.Helper()
			time.Sleep(time.Second)
			if !w.only(t).isPaused() {
				t.Fatal("a sandbox that nothing uses is not paused")
			}
		}
		rest()
		c, err := e.DialPort(t.Context(), alice, s.ID, 10)
		if err != nil {
			t.Fatalf("dial a port that listens a second after the sandbox was resumed: %v", err)
		}
		c.Close()
		rest()
		began := time.Now()
		if _, err := e.DialPort(t.Context(), alice, s.ID, 9); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("dial a port without a listener: %v; want unavailable", err)
		}
		if waited := time.Since(began); waited < wakeGrace || waited > wakeGrace+time.Second {
			t.Errorf("the dial that resumed the sandbox waited %s; want %s", waited, wakeGrace)
		}
		began = time.Now()
		if _, err := e.DialPort(t.Context(), alice, s.ID, 9); !errors.Is(err, sandbox.Unavailable) || time.Since(began) > wakePoll {
			t.Errorf("a sandbox that is awake: %v after %s; want unavailable at once", err, time.Since(began))
		}
		rest()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := e.DialPort(ctx, alice, s.ID, 9); err == nil || time.Since(began) > time.Second {
			t.Errorf("a dial whose context ends: %v after %s; want an error after a second", err, time.Since(began))
		}
	})
}

func TestPortRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), func(o *Options) { o.MaxRuns = 1 })
		s := e.mustCreate(t, sandbox.CreateRequest{})
		for name, tt := range map[string]struct {
			p    sandbox.Principal
			id   string
			port int
			want sandbox.Kind
		}{
			"another's":       {"mallory", s.ID, 8000, sandbox.NotFound},
			"not there":       {alice, sandbox.NewID(), 8000, sandbox.NotFound},
			"port 0":          {alice, s.ID, 0, sandbox.Invalid},
			"port 65536":      {alice, s.ID, 65536, sandbox.Invalid},
			"nothing listens": {alice, s.ID, 9, sandbox.Unavailable},
		} {
			if _, err := e.DialPort(t.Context(), tt.p, tt.id, tt.port); sandbox.KindOf(err) != tt.want {
				t.Errorf("%s: %v; want %s", name, err, tt.want)
			}
		}
		var open []net.Conn
		for range guestapi.MaxPortConns {
			open = append(open, e.mustDial(t, s.ID))
		}
		if _, err := e.DialPort(t.Context(), alice, s.ID, 8000); !errors.Is(err, sandbox.Exhausted) || sandbox.RetryAfterOf(err) == 0 {
			t.Errorf("one connection too many: %v; want exhausted", err)
		}
		// They are not runs, of which there may be one.
		e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"true"}}).ID)
		for _, c := range open {
			c.Close()
		}
		e.mustDial(t, s.ID).Close()
		synctest.Wait() // the run lets go of its sandbox after it has told its end
		e.mu.Lock()
		b := e.sandboxes[s.ID]
		e.mu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		if diff := cmp.Diff([]int{0, 0, 0}, []int{b.ports, len(b.forwards), b.uses}); diff != "" {
			t.Errorf("ports, forwards and uses when all are closed:\n%s", diff)
		}
	})
}
