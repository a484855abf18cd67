package gvisor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
)

// TestKernelKeepsLittle holds a box to its one process on the host, beside those in
// which programs run, and that to starting but once, and to what it has then: in all
// of its threads, as capabilities are a thread's.
func TestKernelKeepsLittle(t *testing.T) {
	dir, d := open(t)
	b := drivertest.Launch(t, d, harness.Spec())

	sentry := sentryOf(t, dir, b.Ref())
	supervisor := parent(t, sentry)
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range statuses {
		status, _ := os.ReadFile(path) // none of one that has ended
		if own := filepath.Dir(path) == fmt.Sprintf("/proc/%d", sentry); !own && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", supervisor)) {
			args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			t.Errorf("the supervisor has another process, %q", args)
		}
	}
	proc := filepath.Join("/proc", strconv.Itoa(sentry))
	args := read(t, filepath.Join(proc, "cmdline"))
	if strings.Contains(args, "--setup-root=false") || strings.Contains(args, "--apply-caps=false") {
		t.Errorf("it started a second time: %q", args)
	}
	if os.Geteuid() == 0 {
		if first, why := hostUserOf(t, dir, b.Ref()); first == 0 && !strings.Contains(why, "map users of") {
			t.Errorf("it is root of the host: %q", why)
		}
	}
	threads, err := filepath.Glob(filepath.Join(proc, "task", "*", "status"))
	if err != nil || len(threads) < 2 {
		t.Fatalf("its threads: %q, %v", threads, err)
	}
	const kept = "000000000008001f" // CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SYS_PTRACE
	want := map[string]string{
		"CapPrm": kept, "CapEff": kept,
		"CapInh": "0000000000000000", "CapAmb": "0000000000000000", "CapBnd": "0000000000000000",
		"NoNewPrivs": "1", "Seccomp": "2",
	}
	for _, path := range threads {
		seen := 0
		for line := range strings.Lines(read(t, path)) {
			name, value, _ := strings.Cut(line, ":")
			if w, found := want[name]; found {
				seen++
				if value = strings.TrimSpace(value); value != w {
					t.Errorf("%s: %s is %s, want %s", path, name, value, w)
				}
			}
		}
		if seen != len(want) {
			t.Errorf("%s has %d of %d fields", path, seen, len(want))
		}
	}
	for line := range strings.Lines(read(t, filepath.Join(proc, "mountinfo"))) {
		if _, fs, _ := strings.Cut(line, " - "); !strings.HasPrefix(fs, "tmpfs runsc-root ") {
			t.Errorf("it still has %s", line)
		}
	}
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if name, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil && strings.HasPrefix(filepath.Base(name), "cpu.") {
			t.Errorf("it has %s open", name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestPollsWhenBusy has a box's kernel begin to try whether polling pays, which
// wakes it thousands of times a second, not before it has much to do.
func TestPollsWhenBusy(t *testing.T) {
	dir, d := open(t)
	box := drivertest.Launch(t, d, harness.Spec())
	sentry := sentryOf(t, dir, box.Ref())
	const many = 1000 // each second
	box.Answers(t, "before it has much to do")
	if rests := switches(t, sentry); rests > many {
		t.Errorf("a kernel without work is woken %d times a second", rests)
	} else {
		t.Logf("a kernel without work is woken %d times a second", rests)
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		box.MustSh(t, "for i in 1 2 3 4 5 6 7 8 9; do ls -lR /usr/bin > /dev/null; done")
		works := switches(t, sentry)
		if works > many {
			t.Logf("a kernel that had work is woken %d times a second", works)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a kernel that had work is woken %d times a second", works)
		}
	}
}

// switches returns how often the threads of a process are woken in a second.
func switches(t *testing.T, pid int) int {
	t.Helper()
	count := func() (sum int) {
		threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "status"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range threads {
			_, rest, _ := strings.Cut(read(t, path), "\nvoluntary_ctxt_switches:")
			var n int
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			sum += n
		}
		return sum
	}
	before := count()
	time.Sleep(time.Second)
	return count() - before
}

// TestDynamicProgram has the driver start a program that gVisor could not start
// again in an empty root.
func TestDynamicProgram(t *testing.T) {
	d, err := gvisor.New(gvisor.Options{StateDir: t.TempDir(), Program: "/bin/sh", Guest: os.Getenv(guestEnv)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	_, err = d.Create(t.Context(), harness.Spec())
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "was built with cgo") {
		t.Errorf("Create by a dynamic program: %v", err)
	}
	if err := d.Probe(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Probe of a dynamic program: %v", err)
	}
}
