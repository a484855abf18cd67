package bundle

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestBundleLimits looks for the limits that the sentry shows to programs.
func TestBundleLimits(t *testing.T) {
	rec := &message.Record{Spec: driver.Spec{Limits: sandbox.Limits{CPUs: 2.5, MemoryBytes: 96 << 20}}}
	r := New(rec, "/box", 2).Linux.Resources
	if got := *r.Memory.Limit; got != 96<<20 {
		t.Errorf("the limit of memory is %d", got)
	}
	if quota, period := *r.CPU.Quota, *r.CPU.Period; quota != 250_000 || period != 100_000 {
		t.Errorf("the limit of CPUs is %d in %d", quota, period)
	}
}
