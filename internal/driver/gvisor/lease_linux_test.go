package gvisor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
)

// TestLeaseOutlivesSupervisor kills the supervisor of a box with a lease. The next
// one, which did not make the box, must end it.
func TestLeaseOutlivesSupervisor(t *testing.T) {
	dir := t.TempDir()
	d, err := harness.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	spec := harness.Spec()
	spec.Detached = true
	b, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	box := drivertest.NewBox(t, b)
	lease := driver.Lease{End: time.Now().Add(time.Hour), Idle: time.Second}
	if ok, err := driver.SetLease(t.Context(), box.Box, lease); err != nil || !ok {
		t.Fatalf("SetLease: %t, %v", ok, err)
	}
	supervisor := parent(t, sentryOf(t, dir, box.Ref()))
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the supervisor lives on", func() bool { return len(hostProcesses(t, dir, box.Ref())) > 0 && syscall.Kill(supervisor, 0) != nil })
	// The driver starts the next supervisor at its next use.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err = d.List(t.Context()); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Fatalf("List after the supervisor's end: %v", err)
	}
	box.Answers(t, "while its holder lives")
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	await(t, "the box has processes, or a supervisor lives on", func() bool {
		return len(hostProcesses(t, dir, box.Ref())) == 0 && len(orphanedSupervisors(t, dir)) == 0 && len(leftovers(t, dir)) == 0
	})
}

// TestLeaseLeavesToOtherServer: while another driver uses the state directory, a box
// whose lease is over is that driver's. A driver of an earlier version takes a box over
// without a lease.
func TestLeaseLeavesToOtherServer(t *testing.T) {
	dir, other := open(t)
	d, err := harness.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	spec := harness.Spec()
	spec.Detached, spec.Lease = true, &driver.Lease{}
	made, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	box, err := other.Attach(t.Context(), made.Ref())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // a lingering supervisor looks each second
	drivertest.NewBox(t, box).Answers(t, "while another driver uses it")
	if err := box.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	await(t, "a supervisor lives on without boxes", func() bool { return len(lingering(t, dir)) == 0 })
}

// lingering returns the supervisors of dir whose driver has ended.
func lingering(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		name, _ := os.ReadFile(path)
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		return string(name) != message.LingeringName+"\n" || !strings.Contains(string(args), dir+"\x00")
	})
}

// await waits until ok returns true.
func await(t *testing.T, failure string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(failure)
		}
	}
}
