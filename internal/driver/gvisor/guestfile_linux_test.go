package gvisor_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// replaceGuest are the ways in which sandbox-root tries to have another program be
// where the server finds the guest. Each is to fail.
var replaceGuest = map[string]string{
	"write":        "cp /bin/sh /.glovebox/glovebox-guest",
	"append":       "echo >> /.glovebox/glovebox-guest",
	"mode":         "chmod 0 /.glovebox/glovebox-guest",
	"owner":        "chown 1000 /.glovebox/glovebox-guest",
	"remove":       "rm -f /.glovebox/glovebox-guest",
	"rename":       "mv /.glovebox/glovebox-guest /.glovebox/was",
	"replace":      "cp /bin/sh /tmp/new && mv -f /tmp/new /.glovebox/glovebox-guest",
	"link":         "ln -sf /bin/sh /.glovebox/glovebox-guest",
	"another":      "touch /.glovebox/another",
	"remove all":   "rm -rf /.glovebox",
	"rename all":   "mv /.glovebox /was",
	"exchange":     "mkdir -p /tmp/d && mv -T /tmp/d /.glovebox",
	"mount file":   "mount --bind /bin/sh /.glovebox/glovebox-guest",
	"mount":        "mount --bind /bin /.glovebox",
	"mount memory": "mount -t tmpfs none /.glovebox",
	"unmount file": "umount -l /.glovebox/glovebox-guest",
	"unmount":      "umount -l /.glovebox",
	"remount":      "mount -o remount,rw /.glovebox",
}

// TestGuestStays has sandbox-root try to replace the guest's program, of which the
// server starts a process for each connection.
func TestGuestStays(t *testing.T) {
	for _, h := range []drivertest.Harness{harness, imageHarness} {
		t.Run(h.Name, func(t *testing.T) {
			if h.Name == imageHarness.Name {
				keepImage(t, imagetest.Busybox(t))
			}
			_, d := openHarness(t, h)
			for name, attack := range replaceGuest {
				t.Run(name, func(t *testing.T) {
					b := drivertest.Launch(t, d, h.Spec())
					before := b.MustRoot(t, guestIdentity)
					r := b.MustRun(t, drivertest.Cmd{Shell: attack, User: sandbox.Root})
					if r.End.Code() == 0 {
						t.Errorf("%s: it worked", attack)
					}
					checkGuest(t, b, before)
				})
			}
		})
	}
}

const guestIdentity = "stat -c '%d %i %s %a %u' /.glovebox /.glovebox/glovebox-guest; ls -A /.glovebox"

// checkGuest checks that the guest is what it was, and that the box takes a new
// connection, which it does by starting the guest's program.
func checkGuest(t *testing.T, b *drivertest.Box, before string) {
	t.Helper()
	if after := b.MustRoot(t, guestIdentity+"; true"); after != before || strings.Count(after, "\n") != 3 {
		t.Errorf("the guest was\n%sand is\n%s", before, after)
	}
	for range 5 { // more than the streams that the guest was started with
		drivertest.NewBox(t, b.Box).Answers(t, "on a new connection")
	}
}

// moveGuest is a program of sandbox-root that puts another program in the guest's
// place all the same. It enters a mount namespace that does not have the guest's
// mount, with the box's root directory open: gVisor, like Linux, lets a directory be
// moved there on which something is mounted elsewhere only.
const moveGuest = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(f, *args):
    if f(*args) < 0: raise OSError(ctypes.get_errno(), str(args))
newns, newuser, detach = 0x20000, 0x10000000, 2
call(libc.unshare, newuser | newns)
open("/proc/self/uid_map", "w").write("0 0 1")
open("/proc/self/gid_map", "w").write("0 0 1")
root = os.open("/", os.O_RDONLY)
call(libc.mount, b"none", b"/media", b"tmpfs", 0, None)
os.mkdir("/media/old")
call(libc.syscall, 41 if os.uname().machine == "aarch64" else 155, b"/media", b"/media/old") # pivot_root
call(libc.umount2, b"/old", detach)
call(libc.unshare, newns)
os.rename(".glovebox", "was", src_dir_fd=root, dst_dir_fd=root)
os.mkdir(".glovebox", dir_fd=root)
fd = os.open(".glovebox/glovebox-guest", os.O_WRONLY | os.O_CREAT, 0o755, dir_fd=root)
os.write(fd, sys.argv[1].encode())
os.fchmod(fd, 0o755)
`

// TestOtherGuest has sandbox-root put another program in the guest's place, which
// the server then starts, and start many programs in it, while a user's programs
// nearly hold the limit. They count, as all programs do.
func TestOtherGuest(t *testing.T) {
	_, d := open(t)
	spec := harness.Spec()
	spec.Limits.Processes = 24
	b := drivertest.Launch(t, d, spec)
	b.Answers(t, "at the start") // on a connection that stays
	other := "#!/bin/sh\ni=0; while [ $i -lt 100 ]; do sleep 613 & i=$((i+1)); done; wait\n"
	move := drivertest.Python(harness.Python, moveGuest, other)
	move.User = sandbox.Root
	if r := b.MustRun(t, move); r.End.Code() != 0 {
		t.Fatalf("the guest is not moved any more, so this test is to try another way: %v", r)
	}
	b.MustSh(t, "i=0; while [ $i -lt 15 ]; do setsid sleep 613 > /dev/null 2>&1 & i=$((i+1)); done")
	for range 6 { // more than the streams that the guest was started with
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if c, err := b.Box.Dial(ctx); err == nil {
			c.Close()
		}
		cancel()
	}
	r := b.MustRun(t, drivertest.Python(harness.Python, `
import os
def name(pid):
    try: return open("/proc/" + pid + "/cmdline").read()
    except OSError: return ""
print(sum("613" in name(pid) for pid in os.listdir("/proc") if pid.isdigit()))`))
	held, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
	if err != nil || held < 15 {
		t.Fatalf("there are no programs: %v", r)
	}
	t.Logf("there are %d programs, and may be %d", held, spec.Limits.Processes)
	if held > spec.Limits.Processes {
		t.Error("these are too many")
	}
}
