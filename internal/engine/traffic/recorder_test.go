package traffic

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// fakeBox is a box with a network.
type fakeBox struct {
	driver.Box // any other call panics
	driver.Networker
	connections []sandbox.Connection
	failing     error
}

func (b *fakeBox) Traffic(_ context.Context, after int64) (sandbox.Traffic, error) {
	t := sandbox.Traffic{Destinations: []sandbox.Destination{{Host: "a.example"}}}
	for _, c := range b.connections {
		if c.Number > after {
			t.Connections = append(t.Connections, c)
		}
	}
	return t, b.failing
}

type fakeRecords struct {
	last    int64
	added   []int64
	failing error
}

func (f *fakeRecords) LastConnection(context.Context, string) (int64, error) {
	return f.last, f.failing
}

func (f *fakeRecords) AddConnections(_ context.Context, _ string, list []sandbox.Connection) error {
	if f.failing != nil {
		return f.failing
	}
	for _, c := range list {
		f.added = append(f.added, c.Number)
	}
	return nil
}

// TestRead records each connection once, also after an error and for a sandbox
// that another process began.
func TestRead(t *testing.T) {
	box := &fakeBox{connections: []sandbox.Connection{{Number: 4}, {Number: 5}, {Number: 6}}}
	recs := &fakeRecords{last: 4}
	r := New(Options{Records: recs, Log: slog.New(slog.DiscardHandler), ID: sandbox.NewID(), Box: box})
	read := func(want bool, added ...int64) {
		t.Helper()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		reached, ok := r.Read(ended)
		if ok != want || ok && len(reached) != 1 {
			t.Errorf("reached %v, %v", reached, ok)
		}
		if diff := cmp.Diff(added, recs.added); diff != "" {
			t.Errorf("recorded, -want +got\n%s", diff)
		}
	}
	recs.failing = errors.New("disk on fire")
	read(false)
	recs.failing = nil
	read(true, 5, 6)
	read(true, 5, 6)
	box.connections = append(box.connections, sandbox.Connection{Number: 7})
	recs.failing = errors.New("disk on fire")
	read(true, 5, 6) // the counts are known all the same
	recs.failing = nil
	read(true, 5, 6, 7)
	for _, err := range []error{driver.ErrGone, errors.New("no answer")} {
		box.failing = err
		read(false, 5, 6, 7)
	}
}

// TestNoNetwork reads the traffic of sandboxes without a network.
func TestNoNetwork(t *testing.T) {
	var none *Recorder
	if reached, ok := none.Read(t.Context()); ok || reached != nil {
		t.Errorf("no recorder: %v, %v", reached, ok)
	}
	r := New(Options{Records: &fakeRecords{}, Log: slog.New(slog.DiscardHandler), Box: struct{ driver.Box }{}})
	if reached, ok := r.Read(t.Context()); ok || reached != nil {
		t.Errorf("a driver without networks: %v, %v", reached, ok)
	}
}
