package app

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestLimitsOfWatchedMemory: the summary does not say that all limits are enforced
// where the memory is only watched.
func TestLimitsOfWatchedMemory(t *testing.T) {
	var r sandbox.Receipt
	for _, name := range sandbox.ControlNames() {
		r = append(r, sandbox.Control{Name: name, Mechanism: "cgroup v2 " + string(name), Enforced: true})
	}
	if c := checkReceipt(r); c.Status != CheckOK || !strings.HasPrefix(c.Detail, "all are enforced") {
		t.Errorf("with control groups: %+v", c)
	}
	for i := range r {
		if r[i].Name == sandbox.ControlMemory {
			r[i].Mechanism = "watched by glovebox, which ends the box above the limit"
		}
	}
	if c := checkReceipt(r); c.Status != CheckNote || strings.Contains(c.Detail, "all are enforced") || !strings.Contains(c.Detail, "watches the memory") {
		t.Errorf("with watched memory: %+v", c)
	}
}

// leftDriver has leftovers.
type leftDriver struct {
	driver.Driver
	names []string
	err   error
}

func (d leftDriver) Leftovers(context.Context, bool) ([]string, error) { return d.names, d.err }

func TestCheckLeftovers(t *testing.T) {
	group := "control group /sys/fs/cgroup/" + strings.Repeat("a", 50)
	for name, c := range map[string]struct {
		driver leftDriver
		want   string
		status CheckStatus
	}{
		"none": {leftDriver{}, "", ""},
		"many": {leftDriver{names: []string{group, group, group, group, group, group}}, "6 of ended sandboxes, such as " + group, CheckNote},
		"fail": {leftDriver{err: errors.New("no /proc")}, "no /proc", CheckWarning},
	} {
		checks := checkLeftovers(t.Context(), c.driver)
		switch {
		case c.want == "" && len(checks) > 0:
			t.Errorf("%s: %+v", name, checks)
		case c.want != "" && (len(checks) != 1 || checks[0].Detail != c.want || checks[0].Status != c.status || len(checks[0].Detail) > 150):
			t.Errorf("%s: %+v, want %q", name, checks, c.want)
		}
	}
}
