package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (g *worldGuest) Unpack(_ context.Context, r io.Reader, opts guestapi.UnpackOptions) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	g.b.unpacked = opts.Path + " " + opts.Owner + " " + string(data)
	return g.checkLocked()
}

// Changes knows none: the agent is not ours.
func (g *worldGuest) Changes(context.Context, guestapi.ChangesRequest) (*guestapi.ChangesResponse, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "find changes: not here")
}

func (g *worldGuest) Diff(_ context.Context, r sandbox.DiffRequest) (sandbox.Diff, error) {
	if r.Since != "" {
		return sandbox.Diff{}, sandbox.Errorf(sandbox.Invalid, "since: the sandbox does not know the run")
	}
	return sandbox.Diff{Path: r.Path, Text: "text"}, nil
}

func (g *worldGuest) SetBase(context.Context, []sandbox.CopiedFile) error { return nil }

func (g *worldGuest) MarkLayer(context.Context) error {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	g.b.unpacked = ""
	return g.checkLocked()
}

func (g *worldGuest) Layer(context.Context) (io.ReadCloser, error) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	return io.NopCloser(strings.NewReader(g.b.unpacked)), g.checkLocked()
}

// TestLayer has archives go in and come out, for whose sandbox it is.
func TestLayer(t *testing.T) {
	e := openWorld(t, newWorld(), t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	if err := e.MarkLayer(t.Context(), alice, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.Unpack(t.Context(), alice, s.ID, strings.NewReader("archive"), sandbox.UnpackTo{Path: "x", Owner: "app"}); err != nil {
		t.Fatal(err)
	}
	r, err := e.Layer(t.Context(), alice, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(r); string(data) != "/data/x app archive" || err != nil {
		t.Errorf("the layer is %q, %v", data, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Layer(t.Context(), "bob", s.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another's layer: %v", err)
	}
	if err := e.Unpack(t.Context(), alice, s.ID, strings.NewReader(""), sandbox.UnpackTo{}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("no path: %v", err)
	}
}
