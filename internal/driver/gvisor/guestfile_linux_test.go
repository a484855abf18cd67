package gvisor_test

import (
	"strings"
	"testing"

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
					if r.End.ExitCode == 0 {
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
