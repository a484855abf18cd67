package engine

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// BenchmarkTrue runs /bin/true in a box that is a plain process: engine, guest
// and fork together, without a sandbox's cost.
func BenchmarkTrue(b *testing.B) {
	e := openFake(b, b.TempDir(), nil)
	s := e.mustCreate(b, sandbox.CreateRequest{})
	for b.Loop() {
		r := e.mustStart(b, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"/bin/true"}})
		e.mustWait(b, r.ID)
	}
}
