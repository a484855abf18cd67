package gvisor_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestDirectoriesLeadNowhere follows ".." from all directories that a box's kernel
// has open. It ends at the root of the image, which is read-only, or of the
// workspace, and never gets to what is beside them on the host.
func TestDirectoriesLeadNowhere(t *testing.T) {
	dir, d := open(t)
	spec := harness.Spec()
	spec.Workspace = workspace(t)
	b := drivertest.Launch(t, d, spec)
	b.MustSh(t, "ls -R /usr/lib/python3 . > /dev/null; ls ..")

	fds := filepath.Join("/proc", strconv.Itoa(sentryOf(t, dir, b.Ref())), "fd")
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Fatal(err)
	}
	roots := map[string]int{}
	for _, e := range entries {
		path := filepath.Join(fds, e.Name())
		if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
			continue
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			up, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			same := place(t, up) == place(t, fd)
			if err := unix.Close(fd); err != nil {
				t.Fatal(err)
			}
			if fd = up; same {
				break
			}
		}
		var fs unix.Statfs_t
		if err := unix.Fstatfs(fd, &fs); err != nil {
			t.Fatal(err)
		}
		kind := "other"
		switch {
		case unix.Faccessat(fd, ".glovebox/glovebox-guest", unix.F_OK, 0) == nil:
			kind = "image"
		case unix.Faccessat(fd, "of-the-workspace", unix.F_OK, 0) == nil:
			kind = "workspace"
		}
		want := map[string]int64{"image": unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV, "workspace": unix.ST_NOSUID | unix.ST_NODEV}
		if kept := fs.Flags & (unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV); kept != want[kind] {
			t.Errorf("%s, mounted with %#x, want %#x", kind, kept, want[kind])
		}
		roots[kind]++
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	if roots["image"] < 1 || roots["workspace"] < 1 || len(roots) != 2 {
		t.Errorf("the directories that the kernel has open lead to %v, want image and workspace alone", roots)
	}
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
