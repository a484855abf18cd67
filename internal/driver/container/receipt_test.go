package container

import (
	"fmt"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestReceiptOf(t *testing.T) {
	good := func() *guestapi.Limits {
		return &guestapi.Limits{
			NoNewPrivs: true, Capabilities: "0000000000000000", Bounding: "00000000000000eb", Interfaces: []string{"lo"}, Seccomp: 2,
			Mounts: []guestapi.Mount{{Path: "/", Type: "overlay", Device: "0:1", ReadOnly: true, Bytes: 1 << 40}, {Path: "/data", Type: "tmpfs", Device: "0:2", Bytes: 1 << 20}},
			Group:  guestapi.Group{CPUs: 1, MemoryBytes: 512 << 20, Processes: 256 + guestThreads, GuestThreads: guestThreads + 3},
		}
	}
	rec := &Record{Spec: driver.Spec{Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone}, Disk: DiskMemory}
	if weak := receiptOf(rec, good(), rec.Spec.Network, "").Unenforced(); len(weak) > 0 {
		t.Fatalf("of a box that is confined: %v", weak)
	}
	rootless := good()
	rootless.Mounts = append(rootless.Mounts, guestapi.Mount{Path: "/dev/null", Type: "devtmpfs", Device: "0:6", Bytes: 12 << 30})
	if weak := receiptOf(rec, rootless, rec.Spec.Network, "").Unenforced(); len(weak) > 0 {
		t.Errorf("of a box of a rootless engine: %v", weak)
	}
	linked := &Record{Spec: driver.Spec{Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkInternet}, Disk: DiskMemory, OneUser: true}
	for _, tunnel := range []bool{true, false} { // false: the interface is the platform's
		l := good()
		l.Interfaces, l.Tunnel = []string{"lo", "eth0"}, tunnel
		if c := receiptOf(linked, l, linked.Spec.Network, linked.Spec.Network).Control(sandbox.ControlNetwork); c.Enforced != tunnel {
			t.Errorf("the network of a box with one user, and a tunnel %v: %+v", tunnel, c)
		}
	}
	for name, change := range map[sandbox.ControlName]func(*guestapi.Limits){
		sandbox.ControlCPU:       func(l *guestapi.Limits) { l.Group.CPUs = 0 },
		sandbox.ControlMemory:    func(l *guestapi.Limits) { l.Group.MemoryBytes = 0 },
		sandbox.ControlProcesses: func(l *guestapi.Limits) { l.Group.Processes = 0 },
		sandbox.ControlDisk: func(l *guestapi.Limits) {
			l.Mounts = append(l.Mounts, guestapi.Mount{Path: "/x", Type: "ext4", Device: "8:1", Bytes: 1 << 40})
		},
		sandbox.ControlNetwork:      func(l *guestapi.Limits) { l.Interfaces = []string{"lo", "eth0"} },
		sandbox.ControlCapabilities: func(l *guestapi.Limits) { l.Bounding = "00000000a80425fb" },
		sandbox.ControlSeccomp:      func(l *guestapi.Limits) { l.Seccomp = 0 },
		sandbox.ControlRootFS:       func(l *guestapi.Limits) { l.Mounts[0].ReadOnly = false },
	} {
		l := good()
		change(l)
		if weak := fmt.Sprint(receiptOf(rec, l, rec.Spec.Network, "").Unenforced()); !strings.Contains(weak, string(name)) {
			t.Errorf("a box without %s: unenforced are %v", name, weak)
		}
	}
}
