// Package drivertest defines a driver by tests: a driver must pass [Run].
// Wrappers around drivers pass it too. [Benchmark] measures a driver.
//
// Only tests import it. A driver's test package describes the driver by a
// [Harness] and calls Run. Its TestMain is [Main], because the suite re-executes
// the test binary as a process that owns boxes, in order to kill it:
//
//	var harness = drivertest.Harness{Name: "fake", Open: open, Spec: spec}
//
//	func TestMain(m *testing.M) { drivertest.Main(m, harness) }
//	func TestDriver(t *testing.T) { drivertest.Run(t, harness) }
//
// The messages of failing tests name the broken clause of the contract in
// package driver, or of the guest's contract in package guestapi. Programs that
// attack the host run only in boxes of a driver that isolates. Each has a cap or
// a timeout, and runs only after a check that it is not on the host.
//
// Other suites use its parts: [Launch], [Box], [Cmd] and [CheckGoroutines].
package drivertest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Harness describes a driver to the suite.
type Harness struct {
	// Name distinguishes the harnesses of one test binary. It has no spaces.
	Name string

	// Open returns a driver that keeps all its files below dir. The path dir is
	// short. The directory is empty or was given to an earlier Open. Several
	// processes call Open.
	Open func(dir string) (driver.Driver, error)

	// Spec returns a fresh, valid, complete spec with a new ID. Its
	// AllowUnenforced names the limits that the driver cannot enforce on this
	// machine.
	Spec func() *driver.Spec

	// Refused are changes of a spec, by name, that this driver must refuse. All
	// drivers must also refuse the suite's own changes.
	Refused map[string]func(*driver.Spec)

	// Leftovers names everything on this machine that belongs to boxes made in
	// dir: processes, mounts, cgroups, files, sockets. Caches, locks and other
	// things of the driver itself do not count. It is nil only if boxes are on
	// another machine.
	Leftovers func(t testing.TB, dir string) []string

	// Processes returns the PIDs, on this machine, of all processes of the box
	// ref. The box may have ended. It is nil only if boxes are on another
	// machine.
	Processes func(t testing.TB, dir, ref string) []int

	// Makers returns the helper processes that make boxes in dir for an owner
	// that has ended. It is nil if the driver has no such helpers.
	Makers func(t testing.TB, dir string) []int

	// OrphanTime is how long processes of an attached box may outlive its owner. 0 means
	// one second. A node ends the kernel of a Pod some time after the Pod's programs.
	OrphanTime time.Duration

	// Stops is true if a box that ended by its lease leaves an object without
	// processes, until a driver discards it. Such a box cannot notice that the
	// state directory was removed.
	Stops bool

	// Python is the path of a Python 3 in boxes of Spec, or "" if there is none.
	// Without Python, the suite skips the tests that a shell cannot do.
	Python string

	// NoPreviews is true if the boxes' agent is not Glovebox's guest and makes
	// no previews of pictures.
	NoPreviews bool

	// Groups names the groups of tests to run; empty means all. It is for a
	// driver that is composed of tested parts.
	Groups []string

	// Goroutines are substrings of the stacks of goroutines that the driver
	// starts once in a process and never ends.
	Goroutines []string
}

// Run runs the whole suite on the driver of h.
func Run(t *testing.T, h Harness) {
	if h.Name == "" || h.Open == nil || h.Spec == nil {
		t.Fatal("the harness lacks Name, Open or Spec")
	}
	s := &suite{h: h}
	type group struct {
		name string
		run  func(*testing.T, *suite)
	}
	groups := []group{
		{"Driver", testDriver},
		{"Process", testProcess},
		{"Output", testOutput},
		{"Tree", testTree},
		{"File", testFile},
		{"Edit", testEdit},
		{"Changes", testChanges},
		{"Name", testName},
		{"Watch", testWatch},
		{"Context", testContext},
		{"Picture", testPicture},
		{"Life", testLife},
		{"Refuse", testRefuse},
		{"Cancel", testCancel},
		{"Many", testMany},
		{"Owner", testOwner},
		{"Lease", testLease},
		{"Pause", testPause},
		{"Save", testSave},
		{"Snapshot", testSnapshot},
		{"DiskSnapshot", testDiskSnapshot},
		{"Restart", testRestart},
		{"Receipt", testReceipt},
		{"Containers", testContainers},
		{"Workspace", testWorkspace},
		{"Seal", testSeal},
		{"Network", testNetwork},
		{"Port", testPort},
		{"Hostile", testHostile},
	}
	for _, name := range h.Groups {
		if !slices.ContainsFunc(groups, func(g group) bool { return g.name == name }) {
			t.Fatalf("the harness names the group %q, which there is not", name)
		}
	}
	for _, g := range groups {
		if len(h.Groups) > 0 && !slices.Contains(h.Groups, g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) { g.run(t, s) })
	}
}

// suite is the state that the tests share.
type suite struct{ h Harness }

// stepTime is the timeout of one step of a test. It is long: it only turns a
// hang into a failure with a name.
const stepTime = time.Minute

// step returns a context for one step.
func step(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), stepTime)
	t.Cleanup(cancel)
	return ctx
}

// site is one driver over one state directory.
type site struct {
	driver.Driver
	s   *suite
	dir string
}

// open opens a driver over a fresh state directory. At the end of the test,
// cleanups check that no box and no goroutine is left, and close the driver.
func (s *suite) open(t testing.TB) *site {
	t.Helper()
	CheckGoroutines(t, s.h.Goroutines...)
	dir := stateDir(t)
	d := s.openDir(t, dir)
	st := &site{Driver: d, s: s, dir: dir}
	t.Cleanup(func() {
		if t.Failed() {
			st.discardAll(t)
			return
		}
		st.nothingLeft(t, "at the end")
	})
	return st
}

// openDir opens a driver over dir and closes it at the end of the test.
func (s *suite) openDir(t testing.TB, dir string) driver.Driver {
	t.Helper()
	d, err := s.h.Open(dir)
	if err != nil {
		t.Fatalf("open driver: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Driver.Close: %v", err)
		}
	})
	return d
}

// stateDir makes a directory whose path is short enough for sockets below it.
// The paths of t.TempDir are too long.
func stateDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the state directory: %v: something is still mounted or owned by another below it", err)
		}
	})
	return dir
}

// nothingLeft checks that the driver has no boxes, and that the machine has no
// leftovers of boxes.
func (st *site) nothingLeft(t testing.TB, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepTime)
	defer cancel()
	refs, err := st.List(ctx)
	if err != nil {
		t.Errorf("Driver.List %s: %v", when, err)
	}
	if len(refs) > 0 {
		t.Errorf("Driver.List %s returns %q, want none: every box was destroyed", when, refs)
	}
	if st.s.h.Leftovers == nil {
		return
	}
	if left := st.s.h.Leftovers(t, st.dir); len(left) > 0 {
		t.Errorf("left on the machine %s:\n\t%s", when, strings.Join(left, "\n\t"))
	}
}

// discardAll removes the leftovers of a failed test, so that they do not disturb
// other tests.
func (st *site) discardAll(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), stepTime)
	defer cancel()
	refs, err := st.List(ctx)
	if err != nil {
		t.Logf("clean up: list boxes: %v", err)
	}
	for _, ref := range refs {
		t.Logf("clean up: box %s was left", ref)
		if b, err := st.Attach(ctx, ref); err == nil {
			if err := b.Destroy(ctx); err != nil {
				t.Logf("clean up: %v", err)
			}
		}
		if err := st.Discard(ctx, ref); err != nil {
			t.Logf("clean up: %v", err)
		}
	}
}

// box creates a box that is destroyed at the end of the test.
func (st *site) box(t testing.TB) *Box {
	t.Helper()
	return st.boxOf(t, st.s.h.Spec())
}

func (st *site) boxOf(t testing.TB, spec *driver.Spec) *Box {
	t.Helper()
	return Launch(t, st.Driver, spec)
}

// newBox opens a driver and creates one box.
func (s *suite) newBox(t testing.TB) *Box {
	t.Helper()
	return s.open(t).box(t)
}

// isolated skips the test if the driver does not isolate. A driver cannot use
// this to avoid tests: Info is constant, and only the fake driver does not
// isolate.
func (s *suite) isolated(t *testing.T, st *site) {
	t.Helper()
	if !st.Info().Isolates {
		t.Skip("the driver declares no isolation")
	}
}

// enforced skips the test if the harness allows the limit to be unenforced.
func enforced(t *testing.T, spec *driver.Spec, name sandbox.ControlName) {
	t.Helper()
	if slices.Contains(spec.AllowUnenforced, name) {
		t.Skipf("the harness allows %s unenforced on this machine", name)
	}
}

// python skips the test if the box has no Python.
func (s *suite) python(t *testing.T) {
	t.Helper()
	if s.h.Python == "" {
		t.Skip("the harness has no Python")
	}
}

// testDriver checks the driver's Info and Probe.
func testDriver(t *testing.T, s *suite) {
	st := s.open(t)
	if st.Info().Name == "" {
		t.Error("Info.Name is empty")
	}
	if st.Info().Boundary == "" || st.Info().Isolates && st.Info().Boundary == sandbox.BoundaryNone {
		t.Errorf("Info.Boundary is %q of a driver with Isolates %t", st.Info().Boundary, st.Info().Isolates)
	}
	if a, b := st.Info(), st.Info(); a != b {
		t.Errorf("Info is not constant: %+v, then %+v", a, b)
	}
	if err := st.Probe(step(t)); err != nil {
		t.Fatalf("Probe: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	st.nothingLeft(t, "after Probe, which leaves nothing")
}
