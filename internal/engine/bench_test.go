package engine

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// BenchmarkRun is what the engine, the store and the log cost a run: the guest
// answers at once.
func BenchmarkRun(b *testing.B) {
	e := openWorld(b, newWorld(), b.TempDir(), nil)
	s := e.mustCreate(b, sandbox.CreateRequest{})
	for _, c := range []struct {
		name string
		req  sandbox.RunRequest
	}{
		{"Command", sandbox.RunRequest{Argv: []string{"print", "42\n"}}},
		{"Code", sandbox.RunRequest{Code: "print(6*7)"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.req.SandboxID = s.ID
			for b.Loop() {
				r := e.mustStart(b, c.req)
				e.mustWait(b, r.ID)
				if _, err := e.Output(b.Context(), alice, r.ID, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCreate is what the engine and the store cost a sandbox.
func BenchmarkCreate(b *testing.B) {
	e := openWorld(b, newWorld(), b.TempDir(), nil)
	for b.Loop() {
		s := e.mustCreate(b, sandbox.CreateRequest{})
		if err := e.Stop(b.Context(), alice, s.ID); err != nil {
			b.Fatal(err)
		}
	}
}

var _ driver.Driver = worldDriver{}
