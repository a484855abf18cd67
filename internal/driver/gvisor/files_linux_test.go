package gvisor_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestFilesLeadNowhere looks at all files of the host that a box's kernel has open.
// They are read-only but for those that are the box's own. From directories it
// follows "..", which ends at the root of the image or of the workspace, and never
// gets to what is beside them on the host.
func TestFilesLeadNowhere(t *testing.T) {
	for _, tt := range []struct {
		name    string
		harness drivertest.Harness
		list    string
		want    map[string]bool // what the kernel has open
	}{
		{"host", harness, "ls -R /usr/lib/python3 . > /dev/null; ls ..; cat /etc/passwd",
			map[string]bool{"image": true, "guest": true, "workspace": true, "file": true}},
		{"image", imageHarness, "ls -R . > /dev/null; ls ..", map[string]bool{"guest": true, "workspace": true, "file": true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "image" {
				keepImage(t, imagetest.Busybox(t)) // which is quickly made
			}
			dir, d := openHarness(t, tt.harness)
			spec := tt.harness.Spec()
			spec.Workspace = workspace(t)
			b := drivertest.Launch(t, d, spec)
			b.MustSh(t, tt.list)
			seen := map[string]bool{}
			fds := filepath.Join("/proc", strconv.Itoa(sentryOf(t, dir, b.Ref())), "fd")
			entries, err := os.ReadDir(fds)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if kind := openFile(t, filepath.Join(fds, e.Name())); kind != "" {
					seen[kind] = true
				}
			}
			if diff := cmp.Diff(tt.want, seen); diff != "" {
				t.Errorf("the files that the kernel has open (-want +got):\n%s", diff)
			}
		})
	}
}

// openFile looks at one that a kernel has open, and returns what it is: none if it
// is no file of the host's, or the box's own.
func openFile(t *testing.T, path string) string {
	t.Helper()
	name, err := os.Readlink(path)
	if err != nil {
		return "" // closed meanwhile
	}
	fi, err := os.Stat(path)
	if err != nil || !fi.IsDir() && !fi.Mode().IsRegular() || strings.HasPrefix(name, "/memfd:") || strings.HasPrefix(name, "anon_inode:") {
		return ""
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		t.Fatal(err)
	}
	const kept = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV
	if fi.Mode().IsRegular() {
		own := strings.HasSuffix(name, "/runsc.log") || strings.Contains(name, "/upper-") && strings.HasSuffix(name, " (deleted)")
		if own || filepath.Base(name) == "of-the-workspace" {
			return ""
		}
		if fs.Flags&kept != kept {
			t.Errorf("%s is in a mount of flags %#x", name, fs.Flags)
		}
		return "file"
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	for range 40 {
		up, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		same := place(t, up) == place(t, fd)
		_ = unix.Close(fd)
		if fd = up; same {
			break
		}
	}
	for file, kind := range map[string]string{"etc/passwd": "image", "glovebox-guest": "guest"} {
		if unix.Faccessat(fd, file, unix.F_OK, 0) != nil {
			continue
		}
		if fs.Flags&kept != kept {
			t.Errorf("%s is in a mount of flags %#x", name, fs.Flags)
		}
		return kind
	}
	switch {
	case unix.Faccessat(fd, "of-the-workspace", unix.F_OK, 0) == nil:
		if want := int64(unix.ST_NOSUID | unix.ST_NODEV); fs.Flags&kept != want {
			t.Errorf("%s is in a mount of flags %#x", name, fs.Flags)
		}
		return "workspace"
	}
	return "beside: " + name
}

// TestSupervisorKeepsNothing counts what a supervisor has open before and after boxes,
// some of which cannot be made.
func TestSupervisorKeepsNothing(t *testing.T) {
	dir, d := open(t)
	first := drivertest.Launch(t, d, harness.Spec())
	supervisor := parent(t, sentryOf(t, dir, first.Ref()))
	opened := func() (names []string) {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", supervisor))
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			// A process that gVisor started stays open until the garbage is collected.
			if name, err := os.Readlink(fd); err == nil && name != "anon_inode:[pidfd]" {
				names = append(names, name)
			}
		}
		return names
	}
	cycle := func() {
		for _, how := range []string{"made", "no workspace", "no room", "given up"} {
			spec := harness.Spec()
			spec.Workspace = workspace(t)
			ctx, cancel := context.WithCancel(t.Context())
			switch how {
			case "no workspace":
				spec.Workspace = filepath.Join(spec.Workspace, "of-the-workspace")
			case "no room":
				spec.ID = first.Spec.ID // whose directory is there
			case "given up":
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			b, err := d.Create(ctx, spec)
			cancel()
			if made := err == nil; made != (how == "made") && how != "given up" {
				t.Errorf("%s: %v", how, err)
			}
			if err == nil {
				if err := b.Destroy(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	}
	cycle()
	time.Sleep(100 * time.Millisecond) // what was given up
	before := opened()
	for range 4 {
		cycle()
	}
	var after []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if after = opened(); len(after) <= len(before) {
			return
		}
	}
	t.Errorf("the supervisor has open %q, and after some boxes %q", before, after)
}

// parent returns the process number of a process's parent.
func parent(t *testing.T, pid int) int {
	t.Helper()
	_, rest, _ := strings.Cut(read(t, filepath.Join("/proc", strconv.Itoa(pid), "status")), "\nPPid:")
	var parent int
	if _, err := fmt.Sscan(rest, &parent); err != nil {
		t.Fatal(err)
	}
	return parent
}

// place tells directories apart, and the mounts that they are seen in.
func place(t *testing.T, fd int) string {
	t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_MNT_ID, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(st.Mnt_id, st.Dev_major, st.Dev_minor, st.Ino)
}

// workspace makes one with a file in it.
func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Geteuid() == 0 {
		if err := os.Lchown(dir, sandbox.UserUID, sandbox.UserUID); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "of-the-workspace"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWithoutGofer asks for all that gVisor's kernel does not do itself where a box
// has a workspace.
func TestWithoutGofer(t *testing.T) {
	_, d := open(t)
	spec := harness.Spec()
	spec.Workspace = workspace(t)
	host, err := net.Listen("unix", filepath.Join(spec.Workspace, "host"))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if err := os.Chmod(filepath.Join(spec.Workspace, "host"), 0o777); err != nil {
		t.Fatal(err)
	}
	b := drivertest.Launch(t, d, spec)
	r, err := b.Run(t.Context(), drivertest.Python(harness.Python, `
import errno, os, socket
def error(f, *args, **kw):
    try: f(*args, **kw)
    except OSError as e: return errno.errorcode[e.errno]
root = os.open(".", os.O_RDONLY)
print(sorted(os.listdir(root)), sorted(os.listdir(root)))
print(error(os.open, ".", os.O_WRONLY))
print(error(socket.socket(socket.AF_UNIX).connect, "host"))
os.mkdir("below")
for path in "socket", "below/socket":
    own = socket.socket(socket.AF_UNIX); own.bind(path); own.listen()
    socket.socket(socket.AF_UNIX).connect(path)
os.symlink("nothing", "link")
os.symlink("nothing", "below/link")
for path in "link", "below/link", "host", ".", "/usr/bin/python3", "/":
    print(error(os.getxattr, path, "user.x", follow_symlinks=False))
os.chmod(".", 0o755); os.utime("."); os.fsync(root)
os.rename("below", "moved"); print(sorted(os.listdir("moved")))
`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `['host', 'of-the-workspace'] ['host', 'of-the-workspace']
EISDIR
ECONNREFUSED
ENODATA
ENODATA
ENODATA
ENODATA
ENODATA
ENODATA
['link', 'socket']
`
	if r.Stdout != want || r.Stderr != "" {
		t.Errorf("it says\n%s%s, want\n%s", r.Stdout, r.Stderr, want)
	}
	if fi, err := os.Stat(filepath.Join(spec.Workspace, "moved")); err != nil || !fi.IsDir() {
		t.Errorf("what the box moved is not there: %v, %v", fi, err)
	}
}
