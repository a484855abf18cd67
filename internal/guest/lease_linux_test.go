package guest_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// startLeased starts a guest with leases. It returns a client, and a channel with the
// guest's end.
func startLeased(t *testing.T, unheld string) (*guestapi.Client, <-chan error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "run", "guest.sock")
	args := []string{guesttest.GuestArg, "serve", "--socket", socket, "--lease", unheld}
	if os.Geteuid() != 0 {
		args = append(args, "--self")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // if it has not ended
		<-gone
	})
	c := guestapi.NewClient(guesttest.Dialer(socket))
	t.Cleanup(c.Close)
	return c, ended
}

// awaitEnd waits until a guest has ended well, with its programs.
func awaitEnd(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the guest's end: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the guest does not end by its lease")
	}
}

func TestLeaseEndsGuest(t *testing.T) {
	t.Run("Unheld", func(t *testing.T) {
		_, ended := startLeased(t, "50ms")
		awaitEnd(t, ended)
	})
	t.Run("Terms", func(t *testing.T) {
		c, ended := startLeased(t, "0s")
		key := guestapi.NewLeaseKey()
		guesttest.Eventually(t, "the guest listens", func() bool { return c.Health(t.Context()) == nil })
		if err := c.BeginLease(t.Context(), key, guestapi.LeaseTerms{Hold: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if err := c.BeginLease(t.Context(), guestapi.NewLeaseKey(), guestapi.LeaseTerms{}); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("another key: %v, want kind conflict", err)
		}
		if err := c.SetLease(t.Context(), guestapi.NewLeaseKey(), guestapi.LeaseTerms{}); !errors.Is(err, sandbox.Unauthenticated) {
			t.Errorf("terms with another key: %v, want kind unauthenticated", err)
		}
		select {
		case err := <-ended:
			t.Fatalf("the guest ended while it was held: %v", err)
		default:
		}
		if err := c.SetLease(t.Context(), key, guestapi.LeaseTerms{Hold: 50 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, ended)
	})
}

// TestGuestWithoutLeases has a guest that takes no leases, as all guests of earlier
// versions.
func TestGuestWithoutLeases(t *testing.T) {
	h := guesttest.New(t)
	key := guestapi.NewLeaseKey()
	for what, err := range map[string]error{
		"BeginLease": h.BeginLease(t.Context(), key, guestapi.LeaseTerms{}),
		"SetLease":   h.SetLease(t.Context(), key, guestapi.LeaseTerms{}),
	} {
		if !errors.Is(err, sandbox.Unsupported) {
			t.Errorf("%s: %v, want kind unsupported", what, err)
		}
	}
}
