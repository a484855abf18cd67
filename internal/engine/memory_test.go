package engine

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestKeepsNoRequest has a sandbox not hold what belongs to the request that made it: a
// server may have thousands of unused sandboxes.
func TestKeepsNoRequest(t *testing.T) {
	for name, begin := range map[string]func(context.Context, *Engine) error{
		"create": func(ctx context.Context, e *Engine) error {
			_, err := e.Create(ctx, alice, sandbox.CreateRequest{})
			return err
		},
		"run": func(ctx context.Context, e *Engine) error {
			r, err := e.Start(ctx, alice, sandbox.RunRequest{Argv: []string{"print", "42\n"}})
			if err == nil {
				_, err = e.Wait(t.Context(), alice, r.ID)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := openWorld(t, newWorld(), t.TempDir(), nil)
			held := requestOf(t, func(ctx context.Context) error { return begin(ctx, e) })
			for deadline := time.Now().Add(5 * time.Second); held.Value() != nil; time.Sleep(time.Millisecond) {
				runtime.GC()
				if time.Now().After(deadline) {
					t.Fatal("a value of the request's context is held")
				}
			}
		})
	}
}

// requestOf calls begin with a context that has a value, and returns a weak pointer to it.
func requestOf(t *testing.T, begin func(context.Context) error) weak.Pointer[[1 << 20]byte] {
	t.Helper()
	type key struct{}
	request := new([1 << 20]byte)
	if err := begin(context.WithValue(t.Context(), key{}, request)); err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(request)
	return weak.Make(request)
}
