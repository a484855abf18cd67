package sentry

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestUmounter(t *testing.T) {
	none := t.TempDir() // not a mount point, so there is nothing to unmount
	for _, tt := range []struct {
		name  string
		asked bool
	}{
		{"asked", true},
		{"not asked", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := runUmounter(t, none, tt.asked); got != 1 {
				t.Errorf("it ended with %d, want 1", got)
			}
		})
	}
	t.Run("mounted", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("only root can mount; a box's start shows it for others")
		}
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // for good: its directory is its own from here on
			done <- func() (err error) {
				before, err := os.Open("/proc/thread-self/ns/mnt")
				if err != nil {
					return err
				}
				defer before.Close()
				if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
					return err
				}
				// It may be the thread by which others know this process's mounts.
				defer func() { err = errors.Join(err, unix.Setns(int(before.Fd()), unix.CLONE_NEWNS)) }()
				if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
					return err
				}
				if err := unix.Mount("test", none, "tmpfs", 0, ""); err != nil {
					return err
				}
				if got := runUmounter(t, none, true); got != 0 {
					return fmt.Errorf("it ended with %d, want 0", got)
				}
				if err := unix.Unmount(none, 0); !errors.Is(err, unix.EINVAL) {
					return fmt.Errorf("to unmount it once more: %w; want that nothing is mounted there", err)
				}
				return nil
			}()
		}()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// runUmounter starts a process that unmounts dir, looks at it, and returns its exit
// status.
func runUmounter(t *testing.T, dir string, ask bool) int {
	before := signalMask(t)
	// So that the pipe is not what comes behind the standard streams.
	other, err := os.Open(os.DevNull)
	if err != nil {
		t.Error(err)
		return -1
	}
	defer other.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return -1
	}
	defer r.Close()
	defer w.Close()
	pid, err := startUmounter(r, dir)
	if err != nil {
		t.Error(err)
		return -1
	}
	if after := signalMask(t); after != before {
		t.Errorf("signals that are blocked: %v, before %v", after, before)
	}
	// It closes the others in its own time.
	want := []string{"0", "1", "2", fmt.Sprint(r.Fd())}
	slices.Sort(want)
	var has []string
	for deadline := time.Now().Add(10 * time.Second); !slices.Equal(has, want) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Error(err)
			break
		}
		has = nil
		for _, e := range entries {
			has = append(has, e.Name())
		}
	}
	if !slices.Equal(has, want) {
		t.Errorf("it has the descriptors %q, want %q", has, want)
		_ = unix.Kill(pid, unix.SIGKILL) // it would not notice that nobody asks it
	}
	runtime.GC() // what it is to unmount stays
	if ask {
		if _, err := w.Write([]byte{0}); err != nil {
			t.Error(err)
		}
	}
	w.Close()
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			if err != nil {
				t.Error(err)
			}
			return status.ExitStatus()
		}
	}
}

func signalMask(t *testing.T) unix.Sigset_t {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask); err != nil {
		t.Error(err)
	}
	return mask
}
