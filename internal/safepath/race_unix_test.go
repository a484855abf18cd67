//go:build unix

package safepath

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSpecial meets what must not be opened. Opening a FIFO would wait for
// good, and the test with it.
func TestSpecial(t *testing.T) {
	d, staging, dir, secret := open(t)
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, "socket")}); err != nil {
		t.Logf("no socket: %v", err) // its path may be too long
	}
	if err := unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
		t.Logf("no device: %v", err)
	}
	if err := os.Symlink("fifo", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fifo", "socket", "device", "link"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			continue
		}
		if _, _, err := d.Open(name); !errors.Is(err, ErrType) {
			t.Errorf("open %s: %v, want ErrType", name, err)
		}
		if _, err := d.Sub(name); err == nil {
			t.Errorf("%s was opened as a directory", name)
		}
		if err := put(d, staging, name+"/x", "x"); err == nil {
			t.Errorf("a file was made below %s", name)
		}
	}
	n, err := d.Export(t.Context(), io.Discard, Limits{})
	if err != nil || n.Files != 0 || n.Links != 1 || n.Skipped < 1 {
		t.Errorf("export: %+v, %v", n, err)
	}
	if err := d.Empty(); err != nil {
		t.Error(err)
	}
	intact(t, staging, secret)
}

// TestUnreadable has directories and files that their owner took their own
// rights to.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can read everything")
	}
	d, staging, dir, secret := open(t)
	write(t, d, staging, "a/b/c", "x")
	for _, name := range []string{"a/b", "a"} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	if err := d.Walk(t.Context(), 10, func(*Entry) error { found++; return nil }); err != nil || found != 3 {
		t.Errorf("walk: %d found, %v; nothing can hide", found, err)
	}
	if err := os.Chmod(filepath.Join(dir, "a/b"), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveAll("a"); err != nil {
		t.Errorf("remove: %v", err)
	}
	intact(t, staging, secret)
}

// raceTime is how long each race goes on.
const raceTime = 700 * time.Millisecond

// TestRace has another thread change what names mean, as fast as it can, while
// files are read, written, walked, exported and removed by these names. What is
// outside must not be read, written, removed or changed.
func TestRace(t *testing.T) {
	swaps := map[string]func(dir, secret string){
		// A directory in the path becomes a link out, and back.
		"directory": func(dir, secret string) {
			at := filepath.Join(dir, "at")
			// Half an exchange leaves the link there, through which this itself
			// would write outside. Nobody else makes links.
			if fi, err := os.Lstat(at); err == nil && fi.Mode()&os.ModeSymlink != 0 {
				os.Remove(at)
			}
			os.Mkdir(at, 0o755)
			os.WriteFile(filepath.Join(at, "secret"), []byte("mine"), 0o644)
			os.Symlink(filepath.Dir(secret), filepath.Join(dir, "away"))
			unix.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "link"))
			exchange(at, filepath.Join(dir, "link"))
			exchange(at, filepath.Join(dir, "link"))
		},
		// A file becomes a link out, a FIFO, a directory.
		"file": func(dir, secret string) {
			os.Mkdir(filepath.Join(dir, "at"), 0o755)
			at := filepath.Join(dir, "at", "secret")
			for i, make := range []func(string) error{
				func(p string) error { return os.Symlink(secret, p) },
				func(p string) error { return unix.Mkfifo(p, 0o666) },
				func(p string) error { return os.Mkdir(p, 0o755) },
				func(p string) error { return os.WriteFile(p, []byte("mine"), 0o644) },
			} {
				temp := filepath.Join(dir, "temp")
				os.RemoveAll(temp)
				make(temp)
				if i == 2 || os.Rename(temp, at) != nil {
					os.RemoveAll(at)
					os.Rename(temp, at)
				}
			}
		},
	}
	for name, swap := range swaps {
		t.Run(name, func(t *testing.T) {
			d, staging, dir, secret := open(t)
			stop := make(chan struct{})
			var swapping sync.WaitGroup
			swapping.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						swap(dir, secret)
					}
				}
			})
			reads, writes := 0, 0
			for began := time.Now(); time.Since(began) < raceTime; {
				got, err := read(d, "at/secret")
				if err == nil && got != "mine" && got != "new" && got != "" { // it is written in two steps
					t.Fatalf("read %q", got)
				}
				if err == nil {
					reads++
				}
				if put(d, staging, "at/secret", "new") == nil {
					writes++
				}
				_ = d.Walk(t.Context(), 100, func(e *Entry) error {
					if e.Mode.IsRegular() && e.Size == int64(len("secret")) {
						t.Errorf("the walk came to %s, %d bytes", e.Path, e.Size)
					}
					return nil
				})
				if _, err := d.Export(t.Context(), leakWriter{t}, Limits{}); err != nil && errors.Is(err, fs.ErrPermission) {
					t.Logf("export: %v", err)
				}
				_ = d.MkdirAll("at/dir/dir")
				_ = d.RemoveAll("at/dir")
				_ = d.RemoveAll("at/secret")
				_ = d.RemoveAll("at")
			}
			close(stop)
			swapping.Wait()
			t.Logf("%d reads and %d writes got through", reads, writes)
			if reads+writes == 0 {
				t.Error("nothing got through, so nothing was tested")
			}
			if _, err := os.Lstat(filepath.Join(filepath.Dir(secret), "dir")); err == nil {
				t.Error("a directory was made outside")
			}
			intact(t, staging, secret)
		})
	}
}

// leakWriter fails the test when it is given the secret.
type leakWriter struct{ t *testing.T }

func (w leakWriter) Write(p []byte) (int, error) {
	if string(p) == "secret" {
		w.t.Error("the export has what is outside")
	}
	return len(p), nil
}

func TestRemoveWhileOthersAdd(t *testing.T) {
	d, staging, dir, secret := open(t)
	stop := make(chan struct{})
	var adding sync.WaitGroup
	adding.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				os.MkdirAll(filepath.Join(dir, "tree/a/b"), 0o755)
				os.WriteFile(filepath.Join(dir, "tree/a/b", string(rune('a'+i%26))), nil, 0o644)
			}
		}
	})
	for range 50 {
		_ = d.RemoveAll("tree") // that it gives up is as good as that it wins
	}
	close(stop)
	adding.Wait()
	if err := d.RemoveAll("tree"); err != nil {
		t.Errorf("when nobody adds any more: %v", err)
	}
	intact(t, staging, secret)
}
