package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gvisor.dev/gvisor/pkg/log"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/checkpoint"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
	"github.com/glovebox-dev/glovebox/internal/state"
)

const (
	// quietTime bounds how long the guest may take to close its streams.
	quietTime = 3 * time.Second
	// settleTime is for what the sentry does after it has closed a stream: see
	// checkpoint.Writer.Check.
	settleTime = 5 * time.Millisecond
	// saveTime bounds gVisor's part of a save, and restoreTime that of a restore.
	// gVisor can wait for ever in both.
	saveTime    = 5 * time.Minute
	restoreTime = time.Minute
)

// stateDir is the place of the box's saved state.
func (b *box) stateDir() string { return filepath.Join(b.dir, "state") }

// saved reports whether the box is saved. Another supervisor may have saved it.
func (b *box) saved() bool { return state.Exists(b.stateDir()) }

// saveBox saves the state of a box and ends its processes. If it fails, the box runs
// on. If snapshot is not "", the state is kept as that snapshot, and the box runs on. If
// key is not nil, the state is encrypted with it.
func (s *supervisor) saveBox(ctx context.Context, b *box, snapshot string, key sealed.Key) (saved *driver.Saved, err error) {
	for range saveTries {
		if saved, err = s.saveOnce(ctx, b, snapshot, key); !errors.Is(err, checkpoint.ErrSocket) {
			break
		}
		b.stir(ctx)
	}
	return saved, err
}

func (s *supervisor) saveOnce(ctx context.Context, b *box, snapshot string, key sealed.Key) (*driver.Saved, error) {
	s.mu.Lock()
	own := b.own
	s.mu.Unlock()
	if len(b.record.Spec.Secrets) > 0 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a sandbox with secrets is not saved on disk: their values are stored nowhere, so it could not wake with them"),
			"leave it in memory")
	}
	if !own && !b.saved() {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "an earlier server made the sandbox, and this one does not know all connections to it"),
			"leave it in memory")
	}
	b.mu.Lock()
	unlock := b.mu.Unlock
	defer func() { unlock() }()
	if b.gone {
		return nil, fmt.Errorf("%w: it was destroyed", driver.ErrGone)
	}
	if b.saved() && snapshot == "" {
		return b.savedLocked()
	}
	if !b.alive() {
		return nil, b.noSentry()
	}
	if b.paused() {
		if err := b.resumeLocked(); err != nil {
			return nil, err
		}
	}
	kept, err := s.keepBuild(b)
	if err != nil {
		return nil, err
	}
	defer kept()
	b.streams.Close()
	defer b.streams.Open()
	if err := b.awaitNoStreams(ctx); err != nil {
		return nil, err
	}
	time.Sleep(settleTime)
	if err := s.endConnections(ctx, b); err != nil {
		return nil, err
	}
	w, err := s.newWriter(b, snapshot, key)
	if err != nil {
		return nil, errors.Join(err, b.restoreNetwork(ctx))
	}
	k := b.kernel.Load()
	began := time.Now()
	if err := k.Pause(k.ID); err != nil {
		return nil, errors.Join(b.orGone(err), w.Discard(), b.endStanding(), b.restoreNetwork(ctx))
	}
	goOn := func(err error) error {
		if err != nil {
			err = errors.Join(b.orGone(err), w.Discard())
		}
		return errors.Join(err, b.endRoomLocked(), b.orGone(k.Resume(k.ID)), b.endStanding(), b.restoreNetwork(ctx))
	}
	m, err := s.prepareState(b, w)
	if err != nil {
		return nil, goOn(err)
	}
	written := make(chan error, 1)
	go func() {
		conn, err := b.control()
		if err == nil {
			defer conn.Close()
			err = w.Save(conn)
		}
		written <- err
	}()
	late := time.NewTimer(saveTime)
	defer late.Stop()
	writes := false // still
	select {
	case err = <-written:
	case <-late.C:
		writes, err = true, errors.New("gVisor does not complete the state")
	case <-ctx.Done():
		writes, err = true, ctx.Err()
	}
	if writes {
		// The box goes on when gVisor returns, and cannot be used before.
		held := unlock
		unlock = func() {}
		go func() {
			defer held()
			// A state that is complete too late is not kept either.
			if err := goOn(cmp.Or(<-written, errors.New("the save was given up"))); err != nil {
				log.Warningf("end a save of %s that failed: %v", b.record.Spec.ID, err)
			}
		}()
		return nil, err
	}
	if err == nil {
		err = w.Check()
	}
	if snapshot != "" && err == nil {
		return s.keepSnapshot(b, w, *m, snapshot, began, goOn)
	}
	if err == nil {
		err = w.Commit(*m)
	}
	if err != nil {
		return nil, goOn(err)
	}
	defer w.Close()
	stood := time.Since(began)
	if err := b.keepCountsLocked(ctx); err != nil {
		log.Warningf("keep the counts of %s, which is saved: %v", b.record.Spec.ID, err)
	}
	if err := s.endSavedLocked(b); err != nil {
		return nil, err
	}
	saved, err := b.savedLocked()
	if err == nil {
		saved.Stood = stood
	}
	return saved, err
}

// keepBuild keeps this build for the state of a box. No sweep removes it until the caller
// calls done.
func (s *supervisor) keepBuild(b *box) (done func(), err error) {
	key, err := s.keys.Of(&b.record)
	if err != nil {
		return nil, err
	}
	done, err = s.builds.Keep(buildOf(key), "/proc/self/exe", s.guest)
	if err != nil {
		return nil, fmt.Errorf("keep this build of Glovebox, which the saved state needs: %w", err)
	}
	return done, nil
}

// saveTries bounds how often a box is saved whose state contains a socket of the host
// that the guest has closed.
const saveTries = 5

// stir makes the guest accept and close a connection. gVisor's kernel sometimes keeps
// a socket that was closed last, until another one is.
func (b *box) stir(ctx context.Context) {
	near, far, err := message.Socketpair()
	if err != nil {
		return
	}
	defer near.Close()
	defer far.Close()
	if err := b.dial(ctx, far); err != nil {
		log.Warningf("connect to %s between two saves: %v", b.record.Spec.ID, err)
	}
}

// savedLocked returns a description of the saved state. The caller holds b.mu.
func (b *box) savedLocked() (*driver.Saved, error) {
	bytes, key, err := state.BytesAt(b.stateDir(), b.record.Spec.ID)
	if err != nil {
		return nil, err
	}
	return &driver.Saved{Bytes: bytes, Build: key.Program}, nil
}

// awaitNoStreams waits until the sentry has none of the sockets that it was given, and gets
// none of a dial that began before the save. The driver has closed their other ends, or
// does so when the dial ends.
func (b *box) awaitNoStreams(ctx context.Context) error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		coming := b.streams.Coming() // first: the sentry has those that came meanwhile
		held, err := b.heldStreams()
		if err != nil {
			return err
		}
		n := max(coming, held)
		if n == 0 {
			return nil
		}
		if time.Since(began) > quietTime {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "the sandbox holds %d connections to the server open", n),
				"end what is connected to the sandbox, and try again")
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (b *box) heldStreams() (int, error) {
	f, err := checkpoint.ReadSentryFiles(b.sentry())
	if err != nil {
		return 0, b.orGone(err)
	}
	return b.streams.Held(f), nil
}

// checkNoStreams returns [checkpoint.ErrSocket] if the paused box has a stream, from the
// supervisor of another server. Its guest cannot close it. A connection that the sentry
// accepts at that moment counts as a stream at the first look.
func (b *box) checkNoStreams() error {
	for range 3 {
		n, err := b.heldStreams()
		if n == 0 || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return checkpoint.ErrSocket
}

// endConnections ends the box's connections to its network, so that programs see an
// error when the box is restored. gVisor would make them see the end of the data.
func (s *supervisor) endConnections(ctx context.Context, b *box) error {
	if !b.record.Linked {
		return nil
	}
	if err := network.Change(ctx, b.dir, sandbox.NetworkNone, nil); err != nil {
		return b.orGone(err)
	}
	time.Sleep(resetTime)
	return nil
}

// restoreNetwork undoes endConnections.
func (b *box) restoreNetwork(ctx context.Context) error {
	if !b.record.Linked || !b.alive() {
		return nil
	}
	return network.Change(context.WithoutCancel(ctx), b.dir, b.record.Spec.Network, nil)
}

// resetTime is how long the packets that end connections may take to reach the
// sentry.
const resetTime = 5 * time.Millisecond

// prepareState makes room for the state of a paused box, on the disk and in the box's
// memory limit, and returns its manifest. The caller calls endRoomLocked if the box
// goes on.
func (s *supervisor) prepareState(b *box, w *checkpoint.Writer) (*state.Manifest, error) {
	if err := b.checkNoStreams(); err != nil {
		return nil, err
	}
	f, err := checkpoint.ReadSentryFiles(b.sentry())
	if err != nil {
		return nil, err
	}
	m := &state.Manifest{Box: b.record.Spec.ID, Saved: time.Now().Round(0).UTC()}
	if m.Key, err = s.keys.Of(&b.record); err != nil {
		return nil, err
	}
	conn, err := b.control()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := checkpoint.ListFiles(conn, m, b.record.Spec.Image == sandbox.ImageHost, b.record.Spec.Workspace != ""); err != nil {
		return nil, err
	}
	if err := w.MakeRoom(f); err != nil {
		return nil, err
	}
	// The sentry writes the files, so their pages count as its memory until they are
	// on the disk, and for ever on a disk in memory.
	if b.watch != nil {
		b.watch.Stop()
	}
	limit := allowance.Group(b.record.Spec.Limits, b.record.Linked).Memory
	return m, b.record.Cgroup.SetMemory(limit + w.Room())
}

// endRoomLocked puts the memory limit of prepareState back. The caller holds b.mu.
func (b *box) endRoomLocked() error {
	if b.watch != nil && !b.watch.Running() && b.alive() {
		file, err := memwatch.Open(b.sentry())
		if err != nil {
			return err
		}
		b.startWatch(file)
	}
	if !b.alive() {
		return nil
	}
	return b.record.Cgroup.SetMemory(allowance.Group(b.record.Spec.Limits, b.record.Linked).Memory)
}

// keepCountsLocked keeps the counts of a box, because the mechanisms that count end
// with its processes. The caller holds b.mu.
func (b *box) keepCountsLocked(ctx context.Context) error {
	if b.record.Cgroup != nil {
		if n, err := b.record.Cgroup.MemoryKills(); err == nil {
			b.record.MemoryKills += n
			b.earlierKills.Store(int64(b.record.MemoryKills))
		}
		if err := errors.Join(b.countCPULocked(), b.save()); err != nil {
			return err
		}
	}
	if !b.record.Linked {
		return nil
	}
	earlier, err := checkpoint.ReadTraffic(b.dir)
	if err != nil {
		return err
	}
	t, _, err := network.Ask(ctx, b.dir, 0)
	if err != nil {
		return err
	}
	return earlier.Keep(b.dir, t)
}

// endSavedLocked ends the processes of a box whose state is complete. The caller
// holds b.mu.
func (s *supervisor) endSavedLocked(b *box) error {
	if err := s.endProcessesLocked(b, b.countCPULocked); err != nil {
		return err
	}
	s.mu.Lock()
	b.children, b.watch, b.network, b.own = nil, nil, 0, true // no process is left, so none is unknown
	s.mu.Unlock()
	b.kernel.Store(nil)
	b.conf.Store(nil)
	b.record.Cgroup = nil // removed; the next start makes another one
	b.streams.Ended()
	for _, name := range []string{sentry.KeptFile, "config.json", "runsc.log"} {
		if err := os.Remove(filepath.Join(b.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return network.RemoveSocket(b.dir)
}

// finishSave completes what a supervisor began that died while it saved a box or
// woke it. It is called for a box that this supervisor does not know yet.
func (s *supervisor) finishSave(b *box) error {
	if state.Interrupted(b.stateDir()) || b.stands() {
		return fmt.Errorf("%w: the server died while the sandbox was saved or woken", driver.ErrGone)
	}
	if !b.saved() || b.sentry() == 0 {
		return nil
	}
	if state.Locked(b.stateDir()) {
		return sandbox.Errorf(sandbox.Conflict, "the sandbox is being saved")
	}
	// The state was complete, and the box stood still since.
	if err := process.KillBox(b.record.Spec.ID); err != nil {
		return err
	}
	return s.endSavedLocked(b)
}
