package allowance

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestGroup(t *testing.T) {
	l := sandbox.Limits{CPUs: 0.5, MemoryBytes: 64 << 20, Processes: 10}
	want := cgroup.Limits{CPUs: 0.5, Memory: 64 << 20, Tasks: 64 + (2+2)*(10+128)}
	if got := Group(l, false); got != want {
		t.Errorf("limits of a box without a network: %+v, want %+v", got, want)
	}
	want.Memory += 32 << 20
	want.Tasks += 64
	if got := Group(l, true); got != want {
		t.Errorf("limits of a box with a network: %+v, want %+v", got, want)
	}
}
