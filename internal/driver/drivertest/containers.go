package drivertest

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testContainers checks that root of a box can do what a container engine does if, and
// only if, the specification allows it, and that the limits of the box stay in force.
// It runs no container engine: a test of the driver may.
func testContainers(t *testing.T, s *suite) {
	st := s.open(t)
	nested := func() *driver.Spec {
		spec := s.h.Spec()
		spec.Containers = true
		return spec
	}
	if !st.Info().Features.Containers {
		_, err := st.Create(step(t), nested())
		if sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Errorf("Containers is not declared in Info: want it refused as unsupported with a hint, got %v", err)
		}
		return
	}
	const mount = "mkdir -p /mnt/a && mount -t tmpfs tmpfs /mnt/a && echo kept >/mnt/a/f && cat /mnt/a/f"
	t.Run("Refused", func(t *testing.T) {
		b := st.box(t)
		for _, script := range []string{mount, "unshare -n true"} {
			if r := b.MustRun(t, Cmd{Shell: script, User: sandbox.Root}); r.End.Status == guestapi.EndOK {
				t.Errorf("%s: root of a box without containers can: %v", script, r)
			}
		}
		if r := b.MustRun(t, Sh("command -v sudo")); r.End.Status == guestapi.EndOK {
			t.Errorf("a box without containers has the command sudo: %v", r)
		}
	})
	t.Run("Root", func(t *testing.T) {
		b := st.boxOf(t, nested())
		if got := b.MustRoot(t, mount); got != "kept\n" {
			t.Errorf("a file of a mounted file system has %q", got)
		}
		b.MustRoot(t, "for c in cpu cpuacct devices memory pids; do test -d /sys/fs/cgroup/$c/ || exit 1; mkdir /sys/fs/cgroup/$c/made; done")
		b.MustRoot(t, "unshare -m -n -p -f -i -u true")
		if got := strings.TrimSpace(b.MustSh(t, "sudo id -u")); got != "0" {
			t.Errorf("sudo id -u prints %q, want 0", got)
		}
	})
	t.Run("User", func(t *testing.T) {
		b := st.boxOf(t, nested())
		if r := b.MustRun(t, Sh("mount -t tmpfs tmpfs /tmp")); r.End.Status == guestapi.EndOK {
			t.Errorf("the user can mount without sudo: %v", r)
		}
	})
	// Root has more to try here than in other boxes.
	for _, a := range []struct {
		name    string
		limit   sandbox.ControlName
		command string
		check   func(*attack, *testing.T)
	}{
		{"ForkBomb", sandbox.ControlProcesses, forker(96), (*attack).wantProcesses},
		{"Mounts", sandbox.ControlMemory, "mkdir /mnt/t && mount -t tmpfs -o size=4g tmpfs /mnt/t && head -c 400000000 /dev/zero >/mnt/t/f && echo held", (*attack).wantStopped},
	} {
		t.Run(a.name, func(t *testing.T) {
			st := s.open(t)
			s.isolated(t, st)
			spec := s.tight()
			spec.Containers = true
			enforced(t, spec, a.limit)
			x := newAttack(t, st, spec)
			x.run(t, Cmd{Shell: a.command, User: sandbox.Root})
			a.check(x, t)
			x.after(t)
		})
	}
}
