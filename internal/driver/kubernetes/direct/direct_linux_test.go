package direct

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/container/stdio"
	guest "github.com/glovebox-dev/glovebox/internal/guest/direct"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A cluster has one box, whose guest echoes.
type cluster struct {
	ip     string
	orders string // the socket for orders

	mu    sync.Mutex
	execs int   // that were asked for; guarded by mu
	fails error // of the next ones; guarded by mu

	ended     chan struct{} // closed at the end of the Pod
	following atomic.Int64  // calls of Ended
}

func newCluster(t *testing.T, ip string) *cluster {
	t.Helper()
	c := &cluster{ip: ip, orders: filepath.Join(t.TempDir(), "s"), ended: make(chan struct{})}
	l, err := net.Listen("unix", c.orders)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go guest.NewListener(func(byte) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = io.Copy(far, far)
			far.Close()
		}()
		return near, nil
	}).ServeOrders(l)
	return c
}

func (c *cluster) Address(context.Context, string) (string, error) { return c.ip, nil }

func (c *cluster) Exec(context.Context, string, []string) (stdio.Streams, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.execs++
	if c.fails != nil {
		return nil, c.fails
	}
	conn, err := net.Dial("unix", c.orders)
	return execStream{conn}, err
}

func (c *cluster) Ended(ctx context.Context, _ string) error {
	c.following.Add(1)
	defer c.following.Add(-1)
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.execs
}

type execStream struct{ net.Conn }

func (execStream) Stderr() string { return "" }

func (l *Links) mustDial(t *testing.T, on Cluster) stdio.Streams {
	t.Helper()
	s, err := l.Dial(t.Context(), on, "ref", "box", guestapi.DirectGuest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	_ = s.SetDeadline(time.Now().Add(time.Minute))
	got := make([]byte, 5)
	if _, err := io.WriteString(s, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, got); err != nil || string(got) != "hello" {
		t.Fatalf("the guest echoes %q, %v", got, err)
	}
	return s
}

// TestOneOrder: concurrent connections need one order, and later ones none. A connection
// that fails, and the end of the box, make the next one give another.
func TestOneOrder(t *testing.T) {
	c, l := newCluster(t, "127.91.4.1"), New()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			s, err := l.Dial(t.Context(), c, "ref", "box", guestapi.DirectGuest)
			if err != nil {
				t.Error(err)
				return
			}
			s.Close()
		})
	}
	all.Wait()
	kept := l.mustDial(t, c)
	if n := c.count(); n != 1 {
		t.Errorf("%d orders, want 1", n)
	}
	New().mustDial(t, c) // another server's
	if _, err := l.Dial(t.Context(), c, "ref", "box", guestapi.DirectGuest); !errors.Is(err, ErrNotReached) {
		t.Errorf("Dial after the order of another server: %v", err)
	}
	l.mustDial(t, c)
	if n := c.count(); n != 3 {
		t.Errorf("%d orders, want 3", n)
	}
	if _, err := io.WriteString(kept, "hello"); err != nil {
		t.Errorf("a connection in use: %v", err)
	}
	l.Forget("ref")
	l.mustDial(t, c)
	l.Forget("ref")
	if n := c.count(); n != 4 || len(l.links) != 0 {
		t.Errorf("%d orders and %d boxes, want 4 and none", n, len(l.links))
	}
}

// TestDialEnds: the end of the caller's context ends a connection under way.
func TestDialEnds(t *testing.T) {
	c, l := newCluster(t, "127.91.4.2"), New()
	down := sandbox.Errorf(sandbox.Unavailable, "the API server is down")
	c.fails = down
	if _, err := l.Dial(t.Context(), c, "ref", "box", guestapi.DirectGuest); !errors.Is(err, down) || errors.Is(err, ErrNotReached) {
		t.Errorf("Dial without an API server: %v", err)
	}
	c.fails = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Dial(ctx, c, "ref", "box", guestapi.DirectGuest); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial by a caller who has gone: %v", err)
	}
	// Where nothing ever answers.
	silent, err := net.Listen("tcp", "127.91.4.3:7353")
	if err != nil {
		t.Skip("this machine has one loopback address:", err)
	}
	defer silent.Close()
	l.mustDial(t, c)
	l.links["ref"].current.address = silent.Addr().String()
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Dial(ctx, c, "ref", "box", guestapi.DirectGuest); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial of an address that is silent: %v", err)
	}
}

// TestEndOfPod: a stream ends with its Pod, also if the network reports nothing. A stream
// that was closed follows no Pod.
func TestEndOfPod(t *testing.T) {
	c, l := newCluster(t, "127.91.4.3"), New()
	unfollowed := func(want int64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); c.following.Load() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d streams follow their Pod, want %d", c.following.Load(), want)
			}
		}
	}
	s, closed := l.mustDial(t, c), l.mustDial(t, c)
	unfollowed(2)
	closed.Close()
	unfollowed(1)
	_ = s.SetDeadline(time.Time{})
	read := make(chan error, 1)
	go func() {
		_, err := s.Read(make([]byte, 1))
		read <- err
	}()
	close(c.ended)
	select {
	case err := <-read:
		if err == nil {
			t.Error("a byte was read from a Pod that has ended")
		}
	case <-time.After(time.Minute):
		t.Fatal("a stream goes on after the end of its Pod")
	}
	unfollowed(0)
	if s, err := l.Dial(t.Context(), c, "ref", "box", guestapi.DirectGuest); err == nil {
		s.Close()
	}
	if n := c.count(); n != 2 {
		t.Errorf("%d orders, want another one after the end of the Pod", n)
	}
}
