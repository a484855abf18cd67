package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

// TestEarlierSupervisor sets a lease with a supervisor that does not know leases: it
// answers as it did before replies had versions. The same error of a supervisor of
// this version is an error.
func TestEarlierSupervisor(t *testing.T) {
	unknown := message.NewError(sandbox.Errorf(sandbox.Internal, "unknown operation %q", message.OpLease))
	for name, c := range map[string]struct {
		reply any
		fails bool
	}{
		"earlier": {map[string]any{"err": unknown, "incidents": map[string]any{}}, false},
		"present": {message.Reply{Version: message.Version, Err: unknown}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(answeringClient(t, c.reply), nil, sandbox.NewID(), func(*box) {})
			defer b.release()
			ok, err := driver.SetLease(t.Context(), b, driver.Lease{End: time.Now()})
			if ok || (err != nil) != c.fails {
				t.Errorf("SetLease: %t, %v; want an error: %t", ok, err, c.fails)
			}
		})
	}
}

// TestEarlierSupervisorEncrypts asks a supervisor that cannot encrypt states to save: the
// request does not name the operation that it knows.
func TestEarlierSupervisorEncrypts(t *testing.T) {
	unknown := message.NewError(sandbox.Errorf(sandbox.Internal, "unknown operation"))
	c := answeringClient(t, message.Reply{Version: message.VersionSnapshot, Err: unknown})
	c.key, c.encrypt = make([]byte, sealed.KeySize), true
	if req := c.saves(&message.Request{Op: message.OpSave}); req.Op != message.OpSaveSealed || len(req.StateKey) == 0 {
		t.Errorf("the request to save is %q", req.Op)
	}
	b := newBox(c, nil, sandbox.NewID(), func(*box) {})
	defer b.release()
	if _, err := driver.Save(t.Context(), b); sandbox.KindOf(err) != sandbox.Unsupported {
		t.Errorf("saved by a supervisor that cannot encrypt: %v; want unsupported", err)
	}
	if _, err := b.Snapshot(t.Context(), sandbox.NewID()); sandbox.KindOf(err) != sandbox.Unsupported {
		t.Errorf("snapshot of a supervisor that cannot encrypt: %v; want unsupported", err)
	}
}

// TestClientRenewsOnce has a supervisor end as soon as it has started. The renewal of
// the leases notices that once, and starts no other supervisor.
func TestClientRenewsOnce(t *testing.T) {
	var said lines
	c := &client{
		program:  os.Getenv("GLOVEBOX_TEST_GUEST"), // it refuses the arguments of a supervisor
		guest:    os.Getenv("GLOVEBOX_TEST_GUEST"),
		stateDir: t.TempDir(),
		log:      slog.New(slog.NewTextHandler(&said, nil)),
		sending:  make(turn, 1),
		leases:   map[string]driver.Lease{},
	}
	for range 3 {
		c.keepLease(sandbox.NewID(), driver.Lease{End: time.Now().Add(time.Hour)})
	}
	p, err := c.running()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.close().end() }()
	<-p.done
	for deadline := time.Now().Add(10 * time.Second); said.count("renew lease") == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the leases are not renewed")
		}
	}
	c.renewLeases(p, slices.Collect(maps.Keys(c.leases))) // as a renewal that comes late
	time.Sleep(300 * time.Millisecond)                    // for what must not follow
	if starts, tries := said.count("starting another"), said.count("renew lease"); starts != 0 || tries != 2 {
		t.Errorf("%d other supervisors started, %d leases tried; want 0 and 2", starts, tries)
	}
}

// lines is a writer of lines, which it keeps.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// TestClientLeaseEndsInTime sends leases to a supervisor that never answers.
func TestClientLeaseEndsInTime(t *testing.T) {
	c := answeringClient(t, nil)
	refs := []string{sandbox.NewID(), sandbox.NewID()}
	var calls sync.WaitGroup
	for _, ref := range refs {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := c.setLease(ctx, ref, driver.Lease{})
			if !errors.Is(err, sandbox.Unavailable) || errors.Is(err, errLost) {
				t.Errorf("setLease: %v, want Unavailable", err)
			}
		})
	}
	calls.Wait()
}

// answeringClient returns the client of a supervisor that answers every request with
// reply, or never if reply is nil.
func answeringClient(t *testing.T, reply any) *client {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns []*net.UnixConn
	for _, fd := range fds {
		c, err := message.FileConn(os.NewFile(uintptr(fd), "socket"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c.(*net.UnixConn))
	}
	go func() {
		for {
			_, files, err := message.Receive(conns[1], make([]byte, message.MaxRequest))
			if err != nil {
				return
			}
			if reply == nil {
				defer message.CloseAll(files)
				continue
			}
			_ = json.NewEncoder(files[0]).Encode(reply)
			message.CloseAll(files)
		}
	}()
	return &client{
		process: &supervisorProcess{conn: conns[0], done: make(chan struct{})},
		sending: make(turn, 1),
		leases:  map[string]driver.Lease{},
	}
}
