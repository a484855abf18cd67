package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pause stops the box where it stands. First its kernel takes every program out
// of its code, then the kernel itself, which now does nothing but look at the
// time some thousand times a second, is stopped by a signal. To stop the
// programs' processes by signal or by the freezer of a control group would be
// simpler, but gVisor traces them, and cannot start another afterwards.
func (b *madeBox) pause() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.paused() {
		return nil
	}
	return b.sleep()
}

// sleep is pause of a box that is not. The caller holds b.mu.
func (b *madeBox) sleep() error {
	b.giveBack() // first: between the two steps that follow, nobody else could resume it
	if err := b.kernel.Pause(b.kernel.ID); err != nil {
		return b.orGone(err)
	}
	if err := signalProcess(b.sentry(), b.record.Spec.ID, unix.SIGSTOP); err != nil {
		return b.orGone(errors.Join(fmt.Errorf("stop kernel: %w", err), b.kernel.Resume(b.kernel.ID)))
	}
	// The signal is seen by each thread in its own time, which on a busy machine
	// may be late.
	began := time.Now()
	for !b.paused() && b.alive() {
		switch took := time.Since(began); {
		case took > stopTime: // resume would take it for one that was not paused
			return errors.Join(fmt.Errorf("kernel of %s does not stop", b.kernel.ID), b.wake())
		case took > 10*time.Millisecond:
			time.Sleep(time.Millisecond)
		default:
			time.Sleep(100 * time.Microsecond)
		}
	}
	return nil
}

// stopTime is how long a kernel may take to stop after it was told to.
const stopTime = 10 * time.Second

// giveBackTime is how long a kernel has to give memory back. What it has not done
// by then it does when it goes on.
const giveBackTime = 20 * time.Millisecond

// giveBack has the box's kernel give back what it does not use, before it is
// stopped for nobody knows how long: a third of its memory after a start, which
// makes much that it needs but once. It is done ever more rarely, as it takes
// some milliseconds on a processor. The caller holds b.mu.
func (b *madeBox) giveBack() {
	now := time.Now()
	if now.Before(b.giveBackAt) || !b.alive() {
		return
	}
	b.giveBackAfter = max(time.Second, 4*b.giveBackAfter)
	b.giveBackAt = now.Add(b.giveBackAfter)
	if signalProcess(b.sentry(), b.record.Spec.ID, giveBackSignal) == nil {
		time.Sleep(giveBackTime)
	}
}

func (b *madeBox) resume() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || !b.paused() {
		return nil
	}
	return b.wake()
}

// wake undoes pause. The caller holds b.mu.
func (b *madeBox) wake() error {
	if err := signalProcess(b.sentry(), b.record.Spec.ID, unix.SIGCONT); err != nil {
		return b.orGone(fmt.Errorf("continue kernel: %w", err))
	}
	return b.orGone(b.kernel.Resume(b.kernel.ID))
}

// paused reports whether the box's kernel is stopped. The process says so
// itself, whichever maker paused it.
func (b *madeBox) paused() bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(b.sentry()), "stat"))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(stat), ") ")
	return ok && strings.HasPrefix(rest, "T")
}
