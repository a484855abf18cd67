package gvisor_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The programs that the driver starts. They are built by TestMain, or given by
// whoever runs a test binary where there is no Go: as another user, say. They
// cannot be the test binary itself, which is dynamic under the race detector.
const (
	programEnv = "GLOVEBOX_TEST_PROGRAM"
	guestEnv   = "GLOVEBOX_TEST_GUEST"
)

var harness = drivertest.Harness{
	Name: "gvisor",
	Open: func(dir string) (driver.Driver, error) {
		return gvisor.New(gvisor.Options{
			StateDir: dir,
			Program:  os.Getenv(programEnv),
			Guest:    os.Getenv(guestEnv),
		})
	},
	Spec: func() *driver.Spec {
		id := sandbox.NewID()
		ids.Store(id, true)
		return &driver.Spec{
			ID:       id,
			Image:    sandbox.ImageHost,
			Hostname: "sandbox",
			Limits:   sandbox.DefaultLimits(),
			Network:  sandbox.NetworkNone,
		}
	},
	Leftovers: leftovers,
	Processes: hostProcesses,
	Makers:    orphanedSupervisors,
	Python:    "/usr/bin/python3",
}

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) == "" {
		os.Setenv(programEnv, build("glovebox"))
		os.Setenv(guestEnv, build("glovebox-guest"))
	}
	drivertest.Main(m, harness, imageHarness)
}

// build builds one of our commands, static, in the checkout's cache, and
// returns its path.
func build(name string) string {
	path, err := filepath.Abs(filepath.Join("../../../.cache/gvisortest", name))
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("go", "build", "-o", path, "github.com/glovebox-dev/glovebox/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build %s: %v\n%s", name, err, out))
	}
	return path
}

func TestDriver(t *testing.T) {
	drivertest.Run(t, harness)
}

// open opens the driver in a state directory of its own, until the test ends.
func open(t *testing.T) (dir string, d driver.Driver) {
	t.Helper()
	return openHarness(t, harness)
}

// openHarness is open for the driver of any harness.
func openHarness(t *testing.T, h drivertest.Harness) (dir string, d driver.Driver) {
	t.Helper()
	dir = t.TempDir()
	return dir, openIn(t, h, dir)
}

// openIn is openHarness in a state directory that is there.
func openIn(t *testing.T, h drivertest.Harness, dir string) driver.Driver {
	t.Helper()
	d, err := h.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func BenchmarkDriver(b *testing.B) { drivertest.Benchmark(b, harness) }

// clockProgram says how old the box was, in seconds, when it had read the clock
// some times; what the time is; how much faster it reads the clock than it asks
// for its parent; and whether the clock goes forward.
const clockProgram = `
import os, time
def fastest(f):
    took = []
    for _ in range(5):
        t = time.perf_counter()
        for _ in range(100): f()
        took.append(time.perf_counter() - t)
    return min(took)
clock = fastest(time.monotonic)
age = time.monotonic()
faster = fastest(os.getppid) / clock
seen = [time.monotonic() for _ in range(50000)]
print(age, time.time(), faster, seen == sorted(seen))
`

// TestClock holds a box's clock to being read without the box's kernel, by
// programs that start with the box too, and to being right.
func TestClock(t *testing.T) {
	_, d := open(t)
	// A box of a busy machine may be older than a second before the program
	// starts, and has its clock measured by then in any case.
	for range 5 {
		box := drivertest.Launch(t, d, harness.Spec())
		before := time.Now()
		r, err := box.Run(t.Context(), drivertest.Python(harness.Python, clockProgram))
		after := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		var age, now, faster float64
		var ordered string
		if _, err := fmt.Sscan(r.Stdout, &age, &now, &faster, &ordered); err != nil {
			t.Fatalf("%v: %v", err, r)
		}
		t.Logf("at an age of %.3f s the clock is read %.0f times as fast as a system call is made", age, faster)
		const slack = 0.05
		unix := func(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
		if now < unix(before)-slack || now > unix(after)+slack {
			t.Errorf("the time is %.3f in the box, between %.3f and %.3f outside", now, unix(before), unix(after))
		}
		if ordered != "True" {
			t.Error("the clock went back")
		}
		if faster < 3 {
			t.Error("to read the clock is no faster than a system call")
		}
		if age < 0.9 {
			return
		}
	}
	t.Skip("no box was asked while it was younger than a second")
}

// hostProcesses finds a box's processes by the arguments of its sentry and its
// network, and the sentry's children.
func hostProcesses(t testing.TB, dir, ref string) []int {
	parents := map[int]int{}
	var found []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if isBoxProcess(string(args)) && strings.Contains(string(args), ref) {
			found = append(found, pid)
		}
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		// The name, in parentheses, may hold anything; the parent comes two
		// fields after it.
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			if f := strings.Fields(rest); len(f) > 1 {
				parents[pid], _ = strconv.Atoi(f[1])
			}
		}
	}
	for i := 0; i < len(found); i++ {
		for pid, parent := range parents {
			if parent == found[i] && !slices.Contains(found, pid) {
				found = append(found, pid)
			}
		}
	}
	return found
}

// orphanedSupervisors finds the supervisors of dir that are not of this process.
func orphanedSupervisors(t testing.TB, dir string) []int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, path := range paths {
		args, _ := os.ReadFile(path)
		if !strings.HasPrefix(string(args), "glovebox-supervisor\x00"+dir+"\x00") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			found = append(found, pid)
		}
	}
	return found
}

func isBoxProcess(args string) bool {
	name, _, _ := strings.Cut(args, "\x00")
	return strings.HasPrefix(name, "runsc-") || name == "glovebox-network"
}

// leftovers lists what is on this machine of boxes in dir.
func leftovers(t testing.TB, dir string) []string {
	var left []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && isBoxProcess(string(args)) && strings.Contains(string(args), dir+"/") {
			left = append(left, "process "+e.Name()+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir+"/") {
			left = append(left, "mount "+line)
		}
	}
	for _, pattern := range []string{dir + "/gvisor/boxes/*", dir + "/gvisor/host*/*", dir + "/gvisor/guest*/*", dir + "/gvisor/runsc/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, files...)
	}
	for _, path := range emptyGroups(t) {
		left = append(left, "control group "+path)
	}
	return left
}

// ids are the names of all boxes of these tests: others may run on this machine
// at the same time.
var ids sync.Map

// emptyGroups lists control groups of our boxes that have no processes: a live
// box's has some.
func emptyGroups(t testing.TB) []string {
	var groups []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile
		}
		if _, ours := ids.Load(e.Name()); ours && e.IsDir() {
			procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if err == nil && len(procs) == 0 {
				groups = append(groups, path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

// TestPauseGivesBack has the kernel of a box that rests hold less memory than
// its start took.
func TestPauseGivesBack(t *testing.T) {
	dir, d := open(t)
	box := drivertest.Launch(t, d, harness.Spec())
	box.MustSh(t, "for i in 1 2 3 4 5 6 7 8; do ls /usr/bin > /dev/null; done")
	sentry := sentryOf(t, dir, box.Ref())
	before := ownMemory(t, sentry)
	var after int
	// What it does not get to before it is stopped it does when it goes on.
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := driver.Pause(t.Context(), box.Box); err != nil {
			t.Fatal(err)
		}
		after = ownMemory(t, sentry)
		if err := driver.Resume(t.Context(), box.Box); err != nil {
			t.Fatal(err)
		}
		if after < before*9/10 {
			break
		}
	}
	t.Logf("the kernel has %d KiB, and %d once it rests", before, after)
	if after >= before*9/10 {
		t.Error("it keeps what its start took")
	}
}

// ownMemory returns how much memory a process has that is no file's, in KiB.
func ownMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nRssAnon:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatalf("%v in %s", err, status)
	}
	return kib
}
