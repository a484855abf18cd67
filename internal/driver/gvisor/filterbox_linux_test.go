package gvisor_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
)

// TestKernelFilterInForce has boxes' kernels put the filter over themselves that
// their supervisor compiled, which must be what the first box's compiled by itself.
func TestKernelFilterInForce(t *testing.T) {
	dir, d := open(t)
	launch := func() (sentry int, log string) {
		box := drivertest.Launch(t, d, harness.Spec())
		data, err := os.ReadFile(filepath.Join(dir, "gvisor", "boxes", box.Ref(), "runsc.log"))
		if err != nil {
			t.Fatal(err)
		}
		return sentryOf(t, dir, box.Ref()), string(data)
	}
	first, log := launch()
	if log != "" {
		t.Fatalf("the first box's kernel, which compiles its filter, says %q", log)
	}
	var later int
	for deadline := time.Now().Add(30 * time.Second); log == ""; {
		if time.Now().After(deadline) {
			t.Fatal("all boxes' kernels compile their filters")
		}
		later, log = launch()
	}
	if log != "the filter of system calls is the supervisor's\n" {
		t.Fatalf("a later box's kernel says %q", log)
	}

	want, got := filtersOf(t, first), filtersOf(t, later)
	t.Logf("in force: %q", want)
	if !strings.Contains(want, "Seccomp:\t2\n") || got != want {
		t.Errorf("in force is %q, in the first box %q", got, want)
	}
	if os.Geteuid() != 0 {
		return // may not read what a filter is
	}
	for i := range 2 { // what the driver refuses to all its processes, and the kernel's own
		want, got := filterProgram(t, first, i), filterProgram(t, later, i)
		if !slices.Equal(want, got) {
			t.Errorf("filter %d is\n%v\nin the first box\n%v", i, got, want)
		}
		t.Logf("filter %d has %d instructions", i, len(got))
	}
}

// sentryOf returns the process number of a box's kernel.
func sentryOf(t *testing.T, dir, ref string) int {
	t.Helper()
	for _, pid := range hostProcesses(t, dir, ref) {
		args, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if strings.HasPrefix(string(args), "runsc-sandbox\x00") {
			return pid
		}
	}
	t.Fatalf("%s has no kernel", ref)
	return 0
}

// filtersOf returns what /proc says of the filters over a process.
func filtersOf(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Seccomp") || strings.HasPrefix(line, "NoNewPrivs:") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// filterProgram returns one of the filters over a process, the oldest of which
// is 0. It skips the test where that is not to be had: it is a privilege, and
// an option of the host's kernel.
func filterProgram(t *testing.T, pid, i int) []unix.SockFilter {
	t.Helper()
	runtime.LockOSThread() // it is the thread that traces
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		t.Skip("trace a box's kernel:", err)
	}
	defer unix.PtraceDetach(pid)
	if err := unix.PtraceInterrupt(pid); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	program := make([]unix.SockFilter, 4096) // as many as there can be
	n, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(pid), uintptr(i), uintptr(unsafe.Pointer(&program[0])), 0, 0)
	if errno != 0 {
		t.Skip("read the filter of a box's kernel:", errno)
	}
	return program[:n]
}
