// Package drivertest is the definition of a driver: what passes [Run] is one.
// Wrappers around drivers pass it too. [Benchmark] measures one.
//
// Only tests import it. A test package of a driver describes the driver by a
// [Harness], lets [Main] be its TestMain (the suite re-executes the test binary
// as a process that owns boxes, in order to kill it), and calls Run:
//
//	var harness = drivertest.Harness{Name: "fake", Open: open, Spec: spec}
//
//	func TestMain(m *testing.M) { drivertest.Main(m, harness) }
//	func TestDriver(t *testing.T) { drivertest.Run(t, harness) }
//
// The messages of failing tests say which clause of the contract in package
// driver, or of the guest's in package guestapi, is broken. The programs that
// attack the host do so only in boxes of a driver that isolates, stop at a cap
// or after a time if nothing else stops them, and never run before it is
// certain that they are not on the host.
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
	// Name distinguishes the harness from others of the same test binary. It
	// has no spaces.
	Name string

	// Open returns a driver that keeps all it has below dir, an empty
	// directory with a short path or one that an earlier Open was given. It is
	// called in several processes.
	Open func(dir string) (driver.Driver, error)

	// Spec returns a fresh, valid, complete spec with a new ID. Its
	// AllowUnenforced names what the driver cannot enforce on this machine.
	Spec func() *driver.Spec

	// Refused are changes of a spec that the driver must refuse, by name,
	// beside those that every driver must.
	Refused map[string]func(*driver.Spec)

	// Leftovers names whatever is on this machine of the boxes that were made
	// in dir: processes, mounts, cgroups, files, sockets. What is of the
	// driver and of no box (caches, locks) does not count. It is nil only if
	// boxes are on another machine.
	Leftovers func(t testing.TB, dir string) []string

	// Processes returns the numbers, on this machine, of all processes of the
	// box ref, which is alive or was. It is nil only if boxes are on another
	// machine.
	Processes func(t testing.TB, dir, ref string) []int

	// Makers returns the processes that make boxes in dir for an owner that has
	// ended. It is nil if owners do that themselves.
	Makers func(t testing.TB, dir string) []int

	// Python is the path of a Python 3 in boxes of Spec, "" if there is none.
	// What a shell can't do is then not tested.
	Python string

	// NoPreviews says that the agent in boxes is not our guest, and makes no
	// previews of pictures.
	NoPreviews bool

	// Groups names the groups of tests to run, all if it is empty: for a
	// driver that is put together from parts which pass the others.
	Groups []string

	// Goroutines are parts of the stacks of goroutines that the driver starts
	// once in a process and never ends.
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
		{"Name", testName},
		{"Watch", testWatch},
		{"Context", testContext},
		{"Picture", testPicture},
		{"Life", testLife},
		{"Refuse", testRefuse},
		{"Cancel", testCancel},
		{"Many", testMany},
		{"Owner", testOwner},
		{"Pause", testPause},
		{"Receipt", testReceipt},
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

// suite is what the tests share.
type suite struct{ h Harness }

// stepTime bounds one step of a test. It is long: it is there so that a step
// that hangs is a failure with a name.
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

// open opens a driver over a fresh state directory. At the end of the test it
// is closed, and nothing may be left: that is checked after each test.
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

// stateDir makes a directory with a path short enough for sockets below it,
// which t.TempDir's is not.
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

// nothingLeft checks that the driver has no boxes, and that the machine has
// nothing of any.
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

// discardAll removes what a failed test left, so that it does not disturb
// others.
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

// newBox is for tests that need one box of a driver of their own.
func (s *suite) newBox(t testing.TB) *Box {
	t.Helper()
	return s.open(t).box(t)
}

// isolated skips tests that are about isolation. It is no loophole: Info is a
// constant of the driver, and every driver but the fake one isolates.
func (s *suite) isolated(t *testing.T, st *site) {
	t.Helper()
	if !st.Info().Isolates {
		t.Skip("the driver declares no isolation")
	}
}

// enforced skips tests of a limit that the harness allows to be unenforced.
func enforced(t *testing.T, spec *driver.Spec, name sandbox.ControlName) {
	t.Helper()
	if slices.Contains(spec.AllowUnenforced, name) {
		t.Skipf("the harness allows %s unenforced on this machine", name)
	}
}

// python skips tests that need a Python in the box.
func (s *suite) python(t *testing.T) {
	t.Helper()
	if s.h.Python == "" {
		t.Skip("the harness has no Python")
	}
}

// testDriver checks what a driver says of itself.
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
