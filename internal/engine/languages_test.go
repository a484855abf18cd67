package engine

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestMissing: what this machine has says nothing of a driver's own system.
func TestMissing(t *testing.T) {
	r, err := interpreter.Runners().Find("python")
	if err != nil {
		t.Fatal(err)
	}
	for _, remote := range []bool{false, true} {
		e := &Engine{name: "far", features: driver.Features{Host: true, Remote: remote}}
		hint := sandbox.HintOf(e.missing(sandbox.ImageHost, r.Missing))
		if strings.Contains(hint, "this machine") == remote || strings.Contains(hint, "driver far") != remote {
			t.Errorf("remote %v: %q", remote, hint)
		}
	}
}
