package supervisor

import (
	"errors"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestPlan(t *testing.T) {
	spec := func(cpus float64) *driver.Spec {
		l := sandbox.DefaultLimits()
		l.CPUs = cpus
		return &driver.Spec{Limits: l}
	}
	p, err := newPlan(nil, spec(1))
	if err != nil || len(p.cpuSet) != 1 || !p.watchMemory || p.group {
		t.Errorf("plan of 1 CPU = %+v, %v; want one processor and watched memory", p, err)
	}
	if _, err := newPlan(nil, spec(0.5)); !errors.Is(err, sandbox.Unsupported) || sandbox.HintOf(err) == "" {
		t.Errorf("plan of half a CPU: %v with hint %q; want it refused with a hint", err, sandbox.HintOf(err))
	}
	allowed := spec(0.5)
	allowed.AllowUnenforced = []sandbox.ControlName{sandbox.ControlCPU}
	if p, err := newPlan(nil, allowed); err != nil || p.cpuSet != nil {
		t.Errorf("plan of half a CPU, allowed unenforced = %+v, %v", p, err)
	}
}
