package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A stub is a driver of boxes that do nothing, and a ledger.
type stub struct {
	driver.Driver // for what no test calls

	mu      sync.Mutex
	boxes   map[string]*stubBox
	made    int
	failing error
	slow    time.Duration
	ledger  map[string]bool
	stuck   error // what RemoveWarm says
	closed  bool

	snapshots  map[string]string // the boxes that they were made of
	restored   int
	noSnapshot error // what Snapshot says
	noRestore  error // what CreateFrom says
	noRemove   error // what RemoveSnapshot says
}

type stubBox struct {
	s    *stub
	spec driver.Spec

	mu     sync.Mutex
	paused bool
	broken error // what Resume says
	asked  int   // for the receipt
}

func newStub() *stub {
	return &stub{boxes: map[string]*stubBox{}, ledger: map[string]bool{}, snapshots: map[string]string{}}
}

func (s *stub) Info() driver.Info {
	return driver.Info{Name: "stub", Features: driver.Features{Pause: true, Workspace: true}}
}

func (s *stub) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing != nil {
		return nil, s.failing
	}
	s.made++
	b := &stubBox{s: s, spec: *spec}
	s.boxes[spec.ID] = b
	return b, nil
}

// CreateFrom implements [driver.SnapshotKeeper].
func (s *stub) CreateFrom(ctx context.Context, spec *driver.Spec, snapshot string) (driver.Box, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noRestore != nil {
		return nil, s.noRestore
	}
	if _, ok := s.snapshots[snapshot]; !ok {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no snapshot %q", snapshot)
	}
	s.restored++
	b := &stubBox{s: s, spec: *spec}
	s.boxes[spec.ID] = b
	return b, nil
}

// Snapshots implements [driver.SnapshotKeeper].
func (s *stub) Snapshots(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.snapshots)), nil
}

// RemoveSnapshot implements [driver.SnapshotKeeper].
func (s *stub) RemoveSnapshot(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noRemove != nil {
		return s.noRemove
	}
	delete(s.snapshots, id)
	return nil
}

func (s *stub) List(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.boxes)), nil
}

func (s *stub) Close() error { s.closed = true; return nil }

func (s *stub) AddWarm(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger[id] = true
	return nil
}

func (s *stub) RemoveWarm(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck != nil {
		return s.stuck
	}
	delete(s.ledger, id)
	return nil
}

// noted returns what is in the ledger.
func (s *stub) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.ledger))
}

func (b *stubBox) Ref() string                            { return b.spec.ID }
func (b *stubBox) Dial(context.Context) (net.Conn, error) { return nil, errors.New("no guest") }

func (b *stubBox) Receipt(context.Context) (sandbox.Receipt, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return sandbox.Receipt{{Name: sandbox.ControlCPU, Value: fmt.Sprint(b.asked)}}, nil
}

func (b *stubBox) Destroy(context.Context) error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	delete(b.s.boxes, b.spec.ID)
	return nil
}

// Snapshot implements [driver.Snapshotter].
func (b *stubBox) Snapshot(_ context.Context, id string) (driver.Snapshot, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if !b.s.ledger[id] {
		return driver.Snapshot{}, errors.New("a sweep would take the snapshot for a stray")
	}
	if b.s.noSnapshot != nil {
		return driver.Snapshot{}, b.s.noSnapshot
	}
	b.s.snapshots[id] = b.spec.ID
	return driver.Snapshot{Bytes: 1000}, nil
}

func (b *stubBox) Pause(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = true
	return nil
}

func (b *stubBox) Resume(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = false
	return b.broken
}

func spec(image string) *driver.Spec {
	return &driver.Spec{ID: sandbox.NewID(), Image: image, Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone}
}

// inner returns the stub's box behind one that was handed out.
func inner(t *testing.T, b driver.Box) *stubBox {
	t.Helper()
	if c, ok := b.(*claimedBox); ok {
		b = c.Box
	}
	return b.(*stubBox)
}

// look lets the pool do what it would by itself, which it begins a moment after
// there is news.
func look() {
	time.Sleep(2 * firstUse)
	synctest.Wait()
}

// world runs a test with a pool that works, in a bubble of time.
func world(t *testing.T, change func(*Options), test func(t *testing.T, s *stub, p *Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		opts := Options{Driver: s, Ledger: s}
		if change != nil {
			change(&opts)
		}
		p, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		test(t, s, p)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
		claimed := len(p.claimed)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if !s.closed {
			t.Error("the driver was not closed")
		}
		if len(s.noted()) != claimed {
			t.Errorf("the ledger has %v", s.noted())
		}
		if len(s.snapshots) != 0 {
			t.Errorf("the snapshots %v are left", s.snapshots)
		}
	})
}

func create(t *testing.T, p *Pool, spec *driver.Spec) driver.Box {
	t.Helper()
	b, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
