package container

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container/lease"
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

func (p *deadPlatform) Snapshot(context.Context, *Record, string, Packer) (driver.Snapshot, error) {
	return driver.Snapshot{}, driver.ErrGone
}

func (p *deadPlatform) Remove(_ context.Context, ref string) error {
	p.removed = append(p.removed, ref)
	return nil
}

func newDeadBox(t *testing.T, p Platform) (*Boxes, *Box) {
	boxes := NewBoxes(NewStateDir(t.TempDir(), "docker"), "")
	return boxes, boxes.Add(p, &Record{Spec: driver.Spec{ID: sandbox.NewID(), Network: sandbox.NetworkNone}})
}

// TestSnapshotWithSecrets: a copy of a box with secrets would be without them.
func TestSnapshotWithSecrets(t *testing.T) {
	boxes := NewBoxes(NewStateDir(t.TempDir(), "docker"), "")
	for what, secret := range map[string]sandbox.Secret{
		"a secret":      {Name: "API_KEY", Hosts: "api.example:443"},
		"a header rule": {Hosts: "api.example:443", Headers: []string{"X-Key"}, Always: true},
	} {
		b := boxes.Add(&deadPlatform{}, &Record{Spec: driver.Spec{ID: sandbox.NewID(), Network: sandbox.NetworkNone, Secrets: []sandbox.Secret{secret}}})
		if _, err := b.SnapshotDisk(t.Context(), sandbox.NewID()); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Errorf("a snapshot of a box with %s: %v, want unsupported with a hint", what, err)
		}
	}
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
	if err := b.SetNetwork(t.Context(), "Example.com", nil); sandbox.KindOf(err) != sandbox.Invalid {
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

// A silentPlatform carries streams to nobody.
type silentPlatform struct{ deadPlatform }

func (p *silentPlatform) State(context.Context, string) (State, error) {
	return State{Running: true}, nil
}

func (p *silentPlatform) Relay(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	go io.Copy(io.Discard, far)
	return near, nil
}

// TestSilentBox: a node that accepts streams and does not carry them is waited for
// for a while.
func TestSilentBox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boxes, b := newDeadBox(t, &silentPlatform{})
		defer boxes.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := b.Answer(ctx); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" || ctx.Err() != nil {
			t.Errorf("Answer: %v (kind %s, hint %q), want unavailable with a hint", err, sandbox.KindOf(err), sandbox.HintOf(err))
		}
		cancel()
		if err := b.Answer(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Answer to a caller that gave up: %v", err)
		}
	})
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

// TestBoxOfEarlierProgram has a box whose record has no grant: it takes no lease, and
// ends by nothing but a process of Glovebox, as before.
func TestBoxOfEarlierProgram(t *testing.T) {
	rec, err := DecodeRecord(map[string]string{LabelRecord: `{"spec":{"ID":"sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa","Detached":true,"Lease":{"end":"0001-01-01T00:00:00Z","idle":0,"busy":"0001-01-01T00:00:00Z"}},"disk":"memory"}`})
	if err != nil {
		t.Fatal(err)
	}
	b := NewBoxes(NewStateDir(t.TempDir(), "docker"), "").Add(&deadPlatform{}, rec)
	defer b.Release()
	if ok, err := driver.SetLease(t.Context(), b, driver.Lease{}); ok || err != nil {
		t.Errorf("SetLease: %t, %v; want false, and no error", ok, err)
	}
}

// TestLeaseOfDeadBox sets the lease of a box whose guest has ended.
func TestLeaseOfDeadBox(t *testing.T) {
	rec := &Record{Spec: driver.Spec{ID: sandbox.NewID(), Network: sandbox.NetworkNone, Detached: true}}
	rec.Lease = lease.NewGrant(&rec.Spec, 0)
	b := NewBoxes(NewStateDir(t.TempDir(), "docker"), "").Add(&deadPlatform{}, rec)
	defer b.Release()
	if err := b.SetLease(t.Context(), driver.Lease{}); !driver.IsGone(err) {
		t.Errorf("SetLease: %v, want ErrGone", err)
	}
}

// An endedPlatform reports that a container has ended.
type endedPlatform struct{}

func (endedPlatform) AwaitEnd(context.Context, string) (State, error) { return State{}, nil }

// TestReachSlow: a box whose guest is lost is gone also if the try took longer than all tries
// may take.
func TestReachSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		_, err := Reach(t.Context(), endedPlatform{}, "ref", func() (int, bool, error) {
			tries++
			time.Sleep(reachTime + time.Second)
			return 0, true, errors.New("no answer")
		})
		if !driver.IsGone(err) || tries != 1 {
			t.Errorf("after %d tries: %v, want one and the end of the box", tries, err)
		}
	})
}
