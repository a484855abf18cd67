package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestStartTimeout has a guest that never answers not hold up a start, and
// the bound on starts not end what has started.
func TestStartTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		begun := time.Now()
		_, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"mute"}})
		if sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "did not start the program within 30s") {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(begun); took < startTimeout || took > startTimeout+time.Second {
			t.Errorf("it took %v", took)
		}
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "45s"}, Timeout: time.Minute})
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
	})
}
