package sentry

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/lisafs"
	"gvisor.dev/gvisor/pkg/unet"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
)

// TestMountServer asks as gVisor's kernel does, and as it does not.
func TestMountServer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			from, err := (&rootfs.Tree{File: f}).HandOver()
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Dup(int(from.Fd())) // it becomes the socket's
			from.Close()
			if err != nil {
				t.Fatal(err)
			}
			if err := serveMount(fd); err != nil {
				t.Fatal(err)
			}
			socket, err := unet.NewSocket(fd)
			if err != nil {
				t.Fatal(err)
			}
			client, root, rootFD, err := lisafs.NewClient(socket)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			check := func(what string, fd int) {
				t.Helper()
				var got, want unix.Stat_t
				if err := errors.Join(unix.Fstat(fd, &got), unix.Stat(path, &want), unix.Close(fd)); err != nil || got.Ino != want.Ino {
					t.Errorf("%s is not %s: %v", what, path, err)
				}
			}
			check("the root", rootFD)
			ctx := context.Background()
			mount := client.NewFD(root.ControlFD)
			for range 2 {
				_, opened, err := mount.OpenAt(ctx, unix.O_RDONLY)
				if err != nil {
					t.Fatal(err)
				}
				check("what was opened", opened)
			}
			for _, flags := range []uint32{unix.O_WRONLY, unix.O_RDWR, unix.O_RDONLY | unix.O_TRUNC} {
				if _, _, err := mount.OpenAt(ctx, flags); !errors.Is(err, unix.EROFS) {
					t.Errorf("OpenAt(%#x): %v", flags, err)
				}
			}
			_, found, err := mount.WalkMultiple(ctx, []string{"a", "b"})
			if err != nil || len(found) != 2 {
				t.Fatalf("WalkMultiple: %v, %v", found, err)
			}
			walked := client.NewFD(found[1].ControlFD)
			if _, opened, err := walked.OpenAt(ctx, unix.O_RDONLY); !errors.Is(err, unix.EPERM) {
				t.Errorf("OpenAt of what was walked to: %d, %v", opened, err)
			}
			if _, err := walked.Connect(ctx, unix.SOCK_STREAM, 0, 0); !errors.Is(err, unix.EPERM) {
				t.Errorf("Connect: %v", err)
			}
			if _, _, err := walked.BindAt(ctx, unix.SOCK_STREAM, "name", 0o600, 0, 0); !errors.Is(err, unix.EPERM) {
				t.Errorf("BindAt: %v", err)
			}
			if _, err := walked.GetXattr(ctx, "user.x", 64); !errors.Is(err, unix.ENODATA) {
				t.Errorf("GetXattr: %v", err)
			}
			if _, err := mount.MkdirAt(ctx, "made", 0o755, 0, 0); !errors.Is(err, unix.EOPNOTSUPP) {
				t.Errorf("MkdirAt: %v", err)
			}
			if err := mount.StatTo(ctx, &linux.Statx{}); !errors.Is(err, unix.EOPNOTSUPP) {
				t.Errorf("StatTo: %v", err)
			}
		})
	}
	if _, err := os.Lstat(filepath.Join(dir, "made")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}
}
