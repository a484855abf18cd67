package container

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A deadPlatform has no container that runs.
type deadPlatform struct {
	closed  error
	removed []string
}

func (p *deadPlatform) Usable(context.Context) error { return p.closed }

func (p *deadPlatform) State(context.Context, string) (State, error) {
	return State{OOMKilled: true}, nil
}

func (p *deadPlatform) Relay(context.Context, string) (net.Conn, error) {
	return nil, driver.ErrGone
}

func (p *deadPlatform) Remove(_ context.Context, ref string) error {
	p.removed = append(p.removed, ref)
	return nil
}

func newDeadBox(t *testing.T, p Platform) (*Boxes, *Box) {
	boxes := NewBoxes(NewStateDir(t.TempDir(), "docker"), "")
	return boxes, boxes.Add(p, &Record{Spec: driver.Spec{ID: sandbox.NewID(), Network: sandbox.NetworkNone}})
}

func TestDeadBox(t *testing.T) {
	p := &deadPlatform{}
	boxes, b := newDeadBox(t, p)
	if _, err := b.Dial(t.Context()); !driver.IsGone(err) {
		t.Errorf("Dial: %v, want ErrGone", err)
	}
	in, err := b.Incidents(t.Context())
	if err != nil || in.Alive || in.MemoryKills != 1 {
		t.Errorf("Incidents: %+v, %v; want one memory kill", in, err)
	}
	if _, err := b.Traffic(t.Context(), 0); sandbox.KindOf(err) != sandbox.Unsupported {
		t.Errorf("Traffic without a network: %v", err)
	}
	if err := b.SetNetwork(t.Context(), "Example.com"); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("SetNetwork of a policy that is not canonical: %v", err)
	}
	p.closed = errors.New("driver is closed")
	boxes.Release()
	if _, err := b.Dial(t.Context()); !errors.Is(err, p.closed) {
		t.Errorf("Dial after the driver closed: %v", err)
	}
	if err := b.Destroy(t.Context()); err != nil || len(p.removed) != 1 {
		t.Errorf("Destroy: %v; removed are %q", err, p.removed)
	}
}

// TestWorkspaceServerEnds has the container of a server end: another is started
// once, and the old one is removed.
func TestWorkspaceServerEnds(t *testing.T) {
	p := &deadPlatform{}
	started := 0
	s := NewWorkspaceServer(func(context.Context) (*Box, error) {
		started++
		_, b := newDeadBox(t, p)
		return b, nil
	}, slog.New(slog.DiscardHandler))
	if _, err := s.Dial(t.Context()); !driver.IsGone(err) {
		t.Errorf("Dial: %v, want ErrGone", err)
	}
	if started != 2 || len(p.removed) != 1 {
		t.Errorf("started %d, removed %d; want 2 and 1", started, len(p.removed))
	}
	if err := s.Stop(); err != nil || len(p.removed) != 2 {
		t.Errorf("Stop: %v; %d removed, want 2", err, len(p.removed))
	}
}
