package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

const alice sandbox.Principal = "alice"

// openFake returns an engine over real guests in plain processes.
func openFake(tb testing.TB, dir string, change func(*Options, *fake.Options)) *Engine {
	tb.Helper()
	fo := fake.Options{Dir: dir}
	opts := Options{
		StateDir:        dir,
		AllowUnenforced: sandbox.ControlNames(),
		Log:             slog.New(slog.NewTextHandler(testWriter{tb}, nil)),
	}
	if change != nil {
		change(&opts, &fo)
	}
	drv, err := fake.New(fo)
	if err != nil {
		tb.Fatal(err)
	}
	opts.Driver = drv
	opts.Store, err = store.Open(tb.Context(), store.Options{Dir: dir})
	if err != nil {
		tb.Fatal(err)
	}
	e, err := New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			tb.Errorf("close engine: %v", err)
		}
		if err := drv.Close(); err != nil {
			tb.Errorf("close driver: %v", err)
		}
		if err := opts.Store.Close(); err != nil {
			tb.Errorf("close store: %v", err)
		}
	})
	return e
}

type testWriter struct{ tb testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.tb.Logf("%s", p)
	return len(p), nil
}

func (e *Engine) mustRun(tb testing.TB, req sandbox.RunRequest) (sandbox.Run, sandbox.Output) {
	tb.Helper()
	r, err := e.Start(tb.Context(), alice, req)
	if err != nil {
		tb.Fatalf("start: %v", err)
	}
	r, err = e.Wait(tb.Context(), alice, r.ID)
	if err != nil {
		tb.Fatalf("wait: %v", err)
	}
	out, err := e.Output(tb.Context(), alice, r.ID, 0)
	if err != nil {
		tb.Fatalf("output: %v", err)
	}
	return r, out
}

func TestSmoke(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	r, out := e.mustRun(t, sandbox.RunRequest{Code: "print(6*7)"})
	t.Logf("%+v %+v", r, out)
	for range 3 {
		r, out = e.mustRun(t, sandbox.RunRequest{SandboxID: r.SandboxID, Code: "print(6*7)"})
		t.Logf("%+v %+v", r, out)
	}
	list, err := e.List(t.Context(), alice)
	t.Logf("%+v %v", list, err)
}
