package gvisor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// hostUserOf returns which user of the host is uid 0 of a box, after it has looked
// whether the box's kernel runs as that user, with as many others. The box says why
// if it is the host's root.
func hostUserOf(t *testing.T, dir, ref string) (first int, why string) {
	t.Helper()
	var kept struct {
		First int    `json:"first_user"`
		Why   string `json:"why_host_users"`
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "gvisor", "boxes", ref, "box.json"))), &kept); err != nil {
		t.Fatal(err)
	}
	proc := filepath.Join("/proc", strconv.Itoa(sentryOf(t, dir, ref)))
	status := read(t, filepath.Join(proc, "status"))
	for _, name := range []string{"Uid", "Gid"} {
		if want := fmt.Sprintf("\n%s:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\n", name, kept.First); !strings.Contains(status, want) {
			t.Errorf("the kernel's status is without %q: %s", want, status)
		}
	}
	if kept.First != 0 {
		want := []string{"0", strconv.Itoa(kept.First), strconv.Itoa(1 << 20)}
		for _, name := range []string{"uid_map", "gid_map"} {
			if got := strings.Fields(read(t, filepath.Join(proc, name))); strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%s of the kernel is %q, want %q", name, got, want)
			}
		}
	}
	return kept.First, kept.Why
}

// TestUsersApart has root's boxes run as users that the host does not have, and see
// what it has of theirs under the numbers that it has on disk.
func TestUsersApart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's boxes have that user")
	}
	dir, d := open(t)
	spec := harness.Spec()
	spec.Workspace = t.TempDir()
	for name, id := range map[string]int{"root": 0, "user": 1000, "ldap": 197609} {
		path := filepath.Join(spec.Workspace, name)
		if err := errors.Join(os.WriteFile(path, []byte(name), 0o600), os.Lchown(path, id, id)); err != nil {
			t.Fatal(err)
		}
	}
	box := drivertest.Launch(t, d, spec)
	first, why := hostUserOf(t, dir, box.Ref())
	if strings.Contains(why, "map users of") {
		t.Skip("the disk of this machine has no mounts with other users: " + why)
	}
	if first < 0x7000_0000 || first >= 0x7ffe_0000 {
		t.Fatalf("uid 0 of a box is uid %d of the host: %s", first, why)
	}

	if got, want := box.MustRoot(t, "cd /data && stat -c '%n %u %g' *; stat -c '%n %u' /usr /usr/bin /root /etc/passwd"),
		"ldap 197609 197609\nroot 0 0\nuser 1000 1000\n/usr 0\n/usr/bin 0\n/root 0\n/etc/passwd 0\n"; got != want {
		t.Errorf("owners of files in the box:\n%s, want\n%s", got, want)
	}
	box.MustSh(t, "cd /data && cat user && ! cat root ldap && echo more >> user && echo made > made && mkdir dir && ln -s made link && mkfifo pipe")
	box.MustRoot(t, "cd /data && cat root ldap && echo root > made-root && chown 54321:12345 made-root && rm ldap")
	for name, want := range map[string][2]uint32{
		"root": {0, 0}, "user": {1000, 1000}, "made": {1000, 1000}, "dir": {1000, 1000}, "link": {1000, 1000}, "made-root": {54321, 12345},
	} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(spec.Workspace, name), &st); err != nil || [2]uint32{st.Uid, st.Gid} != want {
			t.Errorf("%s belongs to %d:%d on the host, want %v: %v", name, st.Uid, st.Gid, want, err)
		}
	}
	limits := read(t, fmt.Sprintf("/proc/%d/limits", sentryOf(t, dir, box.Ref())))
	if own := read(t, "/proc/self/limits"); processLimit(limits) < processLimit(own) {
		t.Errorf("the kernel's limits on processes are below those of root:\n%s", limits)
	}
	checkUserControl(t, box, fmt.Sprintf("uid %d of the host", first))
}

// processLimit returns the soft limit on processes in the text of /proc/PID/limits.
func processLimit(text string) uint64 {
	_, rest, _ := strings.Cut(text, "Max processes")
	f := strings.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	n, err := strconv.ParseUint(f[0], 10, 64)
	if err != nil {
		return 1 << 63 // "unlimited"
	}
	return n
}

func checkUserControl(t *testing.T, box *drivertest.Box, want string) {
	t.Helper()
	receipt, err := box.Receipt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range receipt {
		if c.Name == sandbox.ControlUser && (!strings.Contains(c.Value, want) || !c.Enforced) {
			t.Errorf("the receipt's control is %+v, want %q in it", c, want)
		}
	}
}

// TestHostUsersWhereNoMap has a box work, and say so, whose workspace is on a file
// system that knows no mounts with other users. Another driver finds it again, as it
// does those of earlier versions, which all were like that.
func TestHostUsersWhereNoMap(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount one")
	}
	disk := t.TempDir()
	if err := unix.Mount("users", disk, "ramfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir, d := open(t)
	spec := harness.Spec()
	spec.Workspace, spec.Detached = disk, true
	if err := os.Chown(disk, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	box := drivertest.Launch(t, d, spec)
	first, why := hostUserOf(t, dir, box.Ref())
	if first != 0 || !strings.Contains(why, disk) {
		t.Errorf("uid 0 of the box is uid %d of the host, because of %q", first, why)
	}
	box.MustSh(t, "echo made > /data/made")
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(disk, "made"), &st); err != nil || st.Uid != 1000 {
		t.Errorf("what a program made belongs to %d on the host: %v", st.Uid, err)
	}
	if got := box.MustRoot(t, "stat -c %u /usr /root"); got != "0\n0\n" {
		t.Errorf("/usr and /root belong to %q", got)
	}
	checkUserControl(t, box, "with the host's numbers of users: ")

	// The same driver's other boxes are not concerned.
	plain := drivertest.Launch(t, d, harness.Spec())
	if first, why := hostUserOf(t, dir, plain.Ref()); first == 0 && !strings.Contains(why, "map users of") {
		t.Errorf("a box without a workspace has the host's users: %q", why)
	}
	other := openIn(t, harness, dir)
	again, err := other.Attach(t.Context(), box.Ref())
	if err != nil {
		t.Fatal(err)
	}
	drivertest.NewBox(t, again).Answers(t, "to another driver")
	if err := again.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(hostProcesses(t, dir, box.Ref())) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the box's kernel is still there")
		}
	}
}
