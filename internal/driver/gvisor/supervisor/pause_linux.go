package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
)

// pause stops all execution in the box, in two steps. First the sentry interrupts
// all programs. Then a signal stops the sentry, which would otherwise only read the
// time some thousand times a second. A signal or a cgroup freezer for the programs'
// processes would be simpler. But gVisor traces these processes, and could not
// start another one afterwards.
func (b *box) pause() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.paused() || b.saved() {
		return nil
	}
	return b.pauseLocked()
}

// pauseLocked pauses a box that is not paused. The caller holds b.mu.
func (b *box) pauseLocked() error {
	b.giveBackLocked() // first, because no other supervisor could resume the box between the next two steps
	k := b.kernel.Load()
	if k == nil {
		return b.noSentry()
	}
	if err := k.Pause(k.ID); err != nil {
		return b.orGone(err)
	}
	if err := process.Signal(b.sentry(), b.record.Spec.ID, unix.SIGSTOP); err != nil {
		return b.orGone(errors.Join(fmt.Errorf("stop kernel: %w", err), k.Resume(k.ID)))
	}
	// Each thread handles the signal separately, which may take long on a busy
	// machine.
	began := time.Now()
	for !b.paused() && b.alive() {
		switch took := time.Since(began); {
		case took > stopTime: // resume would take it for a running box
			return errors.Join(fmt.Errorf("kernel of %s does not stop", k.ID), b.resumeLocked())
		case took > 10*time.Millisecond:
			time.Sleep(time.Millisecond)
		default:
			time.Sleep(100 * time.Microsecond)
		}
	}
	return nil
}

// stopTime bounds how long a sentry may take to stop after the signal.
const stopTime = 10 * time.Second

// giveBackTime is how long pause waits for the sentry's garbage collection. The
// sentry completes the rest after it is resumed.
const giveBackTime = 20 * time.Millisecond

// giveBackLocked runs a garbage collection in the sentry before pausing it, because
// the pause may be long. It frees a third of the sentry's memory after a start,
// which allocates much temporary data. A collection takes some milliseconds of a
// processor, so its interval grows fourfold each time. The caller holds b.mu.
func (b *box) giveBackLocked() {
	now := time.Now()
	if now.Before(b.giveBackAt) || !b.alive() {
		return
	}
	b.giveBackAfter = max(time.Second, 4*b.giveBackAfter)
	b.giveBackAt = now.Add(b.giveBackAfter)
	if process.Signal(b.sentry(), b.record.Spec.ID, sentry.GiveBackSignal) == nil {
		time.Sleep(giveBackTime)
	}
}

func (b *box) resume() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || !b.paused() {
		return nil
	}
	return b.resumeLocked()
}

// resumeLocked undoes pause. The caller holds b.mu.
func (b *box) resumeLocked() error {
	if err := process.Signal(b.sentry(), b.record.Spec.ID, unix.SIGCONT); err != nil {
		return b.orGone(fmt.Errorf("continue kernel: %w", err))
	}
	k := b.kernel.Load()
	return b.orGone(k.Resume(k.ID))
}

// paused reports whether the sentry is stopped. It reads the state of the process,
// because another supervisor may have paused it.
func (b *box) paused() bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(b.sentry()), "stat"))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(stat), ") ")
	return ok && strings.HasPrefix(rest, "T")
}
