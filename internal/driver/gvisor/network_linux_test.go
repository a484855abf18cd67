package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// networkBox makes a box that may reach an address at which nobody is, and
// returns the process of its network.
func networkBox(t *testing.T) (box *drivertest.Box, pid int) {
	t.Helper()
	dir, d := open(t)
	spec := harness.Spec()
	spec.Network, spec.Limits.MemoryBytes, spec.Limits.CPUs = "192.0.2.77:9", 256<<20, 1
	box = drivertest.Launch(t, d, spec)
	for _, pid := range hostProcesses(t, dir, box.Ref()) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(string(args), "glovebox-network\x00") {
			return box, pid
		}
	}
	t.Fatal("the network has no process")
	return nil, 0
}

// TestNetworkKeepsLittle looks at what the process that parses a box's packets has
// of the host: no capability and its filter in all threads, an empty root,
// namespaces of its own, its sockets, and the limits of the box.
func TestNetworkKeepsLittle(t *testing.T) {
	box, pid := networkBox(t)
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	none := strings.Repeat("0", 16)
	want := map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2",
	}
	threads, err := filepath.Glob(filepath.Join(proc, "task", "*", "status"))
	if err != nil || len(threads) < 2 {
		t.Fatalf("its threads: %q, %v", threads, err)
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
	for _, group := range groups(t, box.Ref()) {
		if procs := strings.Fields(read(t, filepath.Join(group, "cgroup.procs"))); !slices.Contains(procs, strconv.Itoa(pid)) {
			t.Errorf("it is not in %s", group)
		}
	}
	walls := networkControl(t, box).Mechanism
	for _, wall := range []string{"namespaces of its own", "an empty root directory", "no capabilities", "an allow-list of system calls"} {
		if !strings.Contains(walls, wall) {
			t.Errorf("the receipt does not say %q: %q", wall, walls)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno == 0 && !strings.Contains(walls, "Landlock") {
		t.Errorf("the receipt does not say Landlock: %q", walls)
	}
	if os.Geteuid() != 0 {
		return // the rest of what it has is not shown to its user
	}
	if entries, err := os.ReadDir(filepath.Join(proc, "root")); err != nil || len(entries) > 0 {
		t.Errorf("its root has %v, %v", entries, err)
	}
	if mounts := read(t, filepath.Join(proc, "mountinfo")); strings.Count(mounts, "\n") != 1 {
		t.Errorf("its mounts are\n%s", mounts)
	}
	for _, kind := range []string{"user", "mnt", "pid", "ipc", "uts", "cgroup"} {
		its, err := os.Readlink(filepath.Join(proc, "ns", kind))
		ours, err2 := os.Readlink(filepath.Join("/proc/self/ns", kind))
		if err != nil || err2 != nil || its == ours {
			t.Errorf("its namespace %s is %q, this process's %q (%v, %v)", kind, its, ours, err, err2)
		}
	}
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		name, err := os.Readlink(filepath.Join(proc, "fd", fd.Name()))
		if err == nil && name != os.DevNull && !strings.HasPrefix(name, "socket:") && !strings.HasPrefix(name, "anon_inode:") {
			t.Errorf("it has %s open", name)
		}
	}
}

func networkControl(t *testing.T, box *drivertest.Box) sandbox.Control {
	t.Helper()
	receipt, err := box.Receipt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range receipt {
		if c.Name == sandbox.ControlNetwork {
			return c
		}
	}
	t.Fatal("the receipt has no network")
	return sandbox.Control{}
}

// floodProgram sends datagrams, each of a new socket and to another port, all of
// which are refused.
const floodProgram = `
import socket
for n in range(20000):
    if n % 100 == 0: s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try: s.sendto(bytes(1000), ("192.0.2.77", 1000 + n))
    except OSError: pass
print("sent")
`

// TestNetworkFlood has a box send what costs its network work, and that be the
// box's own: of its memory, and so of its processor time, as both are in the same
// control groups.
func TestNetworkFlood(t *testing.T) {
	box, pid := networkBox(t)
	before := peakMemory(t, pid)
	r, err := box.Run(t.Context(), drivertest.Python(harness.Python, floodProgram))
	if err != nil || r.Stdout != "sent\n" {
		t.Fatalf("%v, %v", r, err)
	}
	after := peakMemory(t, pid)
	t.Logf("the network's process has taken %d KiB at most, and %d before", after, before)
	if most := before + 96<<10; after > most { // its goal for a box of 256 MiB
		t.Error("that is more than it may have")
	}
	for _, group := range groups(t, box.Ref()) {
		if procs := strings.Fields(read(t, filepath.Join(group, "cgroup.procs"))); !slices.Contains(procs, strconv.Itoa(pid)) {
			t.Errorf("it is not in %s", group)
		}
	}
}

// TestNetworkStalls has a box send more datagrams than fit on the way to its network, whose
// process is stopped. gVisor's blocking send takes a full link for a partial write, and
// would send empty datagrams for ever.
func TestNetworkStalls(t *testing.T) {
	box, pid := networkBox(t)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*time.Second, func() { _ = unix.Kill(pid, unix.SIGCONT) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := box.Run(ctx, drivertest.Python(harness.Python, floodProgram))
	if err != nil || r.Stdout != "sent\n" {
		t.Fatalf("%v, %v", r, err)
	}
}

// peakMemory returns the most memory that a process had, in KiB.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	_, rest, _ := strings.Cut(read(t, fmt.Sprintf("/proc/%d/status", pid)), "\nVmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}
