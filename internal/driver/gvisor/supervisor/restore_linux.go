package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/builds"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/checkpoint"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/state"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// order returns the spec of a saved box, from which the driver makes the request that
// restores it, or nil if the box is not saved. If only another build can restore the
// box, order returns that build.
func (s *supervisor) order(b *box) (*driver.Spec, *builds.ID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || !b.saved() {
		return nil, nil, nil
	}
	if state.Locked(b.stateDir()) {
		return nil, nil, sandbox.Errorf(sandbox.Conflict, "another server saves or wakes the sandbox")
	}
	spec := b.record.Spec
	saved, err := state.KeyAt(b.stateDir())
	if err != nil {
		return nil, nil, err
	}
	here, err := s.keys.Of(&b.record)
	if err != nil {
		return nil, nil, err
	}
	if id := buildOf(saved); id != buildOf(here) {
		return &spec, &id, nil
	}
	return &spec, nil, nil
}

// buildOf returns the build that can restore a state with a key.
func buildOf(k state.Key) builds.ID { return builds.ID{Program: k.Program, Guest: k.Guest} }

// sweepBuilds removes the builds and the bases that no saved box and no snapshot needs.
func (s *supervisor) sweepBuilds() {
	err := s.builds.Sweep(func() (map[builds.ID]bool, error) {
		refs, err := s.list()
		if err != nil {
			return nil, err
		}
		ids, err := s.snapshots()
		if err != nil {
			return nil, err
		}
		var states []string
		for _, ref := range refs {
			states = append(states, (&box{dir: s.boxDir(ref)}).stateDir())
		}
		for _, id := range ids {
			states = append(states, s.snapshotState(id))
		}
		needed := map[builds.ID]bool{}
		for _, dir := range states {
			keys, err := state.KeysAt(dir)
			if err != nil {
				return nil, err // of an unknown build
			}
			for _, k := range keys {
				needed[buildOf(k)] = true
			}
		}
		return needed, nil
	})
	if err != nil {
		log.Warningf("remove builds that no saved sandbox needs: %v", err)
	}
	if err := s.bases.Sweep(); err != nil {
		log.Warningf("remove the bases of no saved sandbox: %v", err)
	}
}

// rootName returns the name by which the state of a box knows its image.
func rootName(image *message.ImageRoot) string {
	if image == nil {
		return ""
	}
	return filepath.Base(image.File)
}

// restore makes a saved box go on, in new processes. If it fails, the box is still
// saved, unless its programs may have run.
func (s *supervisor) restore(ctx context.Context, b *box, req *message.Request, files []*os.File) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return fmt.Errorf("%w: it was destroyed", driver.ErrGone)
	}
	if !b.saved() {
		if req.Snapshot != "" {
			return sandbox.Errorf(sandbox.Conflict, "the sandbox is in use")
		}
		return nil // another request was faster
	}
	if req.FirstUser != b.record.FirstUser {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the sandbox was saved with other users of the host than sandboxes have now"),
			"start the server as it was started then, as root or not")
	}
	_, preparing := trace.Start(ctx, "prepare files")
	defer func() { preparing.End(err) }()
	st, err := state.Open(b.stateDir(), b.record.Spec.ID, req.StateKey)
	if err != nil {
		return err
	}
	defer st.Close()
	from := st
	if req.Snapshot != "" {
		if from, err = s.openSnapshot(req.Snapshot, req.StateKey); err != nil {
			return err
		}
		defer from.Close()
	}
	if err := s.checkFits(b, from.Manifest, req.Root); err != nil {
		return err
	}
	contents, err := from.Files(checkpoint.Files...)
	if err != nil {
		return err
	}
	verified := make(chan error, 1)
	go func() { verified <- from.Verify() }()
	defer func() {
		if err != nil {
			<-verified // it reads files that are about to be closed
		}
	}()
	plan, err := newPlan(s.groups, &b.record.Spec)
	if err != nil {
		return err
	}
	if b.alive() { // its end failed when it was saved
		if err := s.endSavedLocked(b); err != nil {
			return err
		}
	}
	var workspace *rootfs.Tree
	if len(files) == 1 {
		workspace = &rootfs.Tree{File: files[0]}
	}
	ended, err := endedStreams()
	if err != nil {
		return err
	}
	defer message.CloseAll(ended)
	if err := st.Use(); err != nil {
		return err
	}
	ran := false
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, s.endSavedLocked(b))
		if ran {
			err = errors.Join(fmt.Errorf("%w: it ended while it was restored", driver.ErrGone), err)
		} else {
			err = errors.Join(err, st.PutBack())
		}
	}()
	if err := plan.apply(s.groups, b); err != nil {
		return err
	}
	err = s.launch(ctx, b, launchOrder{
		image: req.Root, workspace: workspace, ended: ended, preparing: preparing,
		begin: func(*config.Config, *specs.Spec) (err error) {
			ran, err = s.readState(ctx, b, contents, verified)
			return err
		},
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	b.own = true // this supervisor knows all of the box's new processes
	s.mu.Unlock()
	if err := st.Remove(); err != nil {
		log.Warningf("remove the state of %s, which is awake: %v", b.record.Spec.ID, err)
	}
	// Loading leaves garbage.
	_ = process.Signal(b.sentry(), b.record.Spec.ID, sentry.GiveBackSignal)
	if req.Snapshot != "" {
		return b.setHostname(ctx)
	}
	return nil
}

// endedStreams returns streams in place of those that a saved guest began with, which
// the caller closes. gVisor's kernel may keep the object of a closed stream, and looks
// for its socket.
func endedStreams() (ended []*os.File, err error) {
	for range message.MaxStreams {
		near, far, err := message.Socketpair()
		if err != nil {
			message.CloseAll(ended)
			return nil, err
		}
		near.Close()
		ended = append(ended, far)
	}
	return ended, nil
}

// readState has the new sentry of a box read a state, when that is known to be whole. It
// reports whether programs may have run.
func (s *supervisor) readState(ctx context.Context, b *box, contents []*os.File, verified chan error) (ran bool, err error) {
	err = trace.Do(ctx, "restore", func(context.Context) error {
		if err := <-verified; err != nil {
			verified <- nil
			return err
		}
		verified <- nil
		conn, err := b.control()
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := checkpoint.Restore(conn, contents, restoreTime, func() error { return s.kill(b) }); err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "restore the saved state: %w", err)
		}
		ran = true
		return nil
	})
	return ran, err
}

// checkFits checks that a state fits this program, this machine and the workspace.
func (s *supervisor) checkFits(b *box, m *state.Manifest, image *message.ImageRoot) error {
	key, err := s.keys.Of(&b.record)
	if err != nil {
		return err
	}
	key.Root = rootName(image)
	if err := m.Key.Check(key); err != nil {
		return err
	}
	if err := m.CheckHost(); err != nil {
		return err
	}
	if b.record.Spec.Workspace == "" {
		return nil
	}
	if err := rootfs.CheckWorkspace(b.record.Spec.Workspace); err != nil {
		return err
	}
	return m.CheckNeeded(b.record.Spec.Workspace, sandbox.WorkDir)
}

// refresh takes note of what another supervisor did with a box: it may have restored
// the box, in processes that this one does not know.
func (s *supervisor) refresh(b *box) error {
	if b.alive() || b.saved() || !state.Exists(b.dir) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.alive() || b.saved() {
		return nil
	}
	before := b.sentry()
	kernel, err := sentry.Kept(b.dir, s.earlierDir(), b.record.Spec.ID)
	if err != nil {
		return err
	}
	b.kernel.Store(kernel)
	if b.sentry() != before && b.alive() {
		s.mu.Lock()
		b.own = false
		s.mu.Unlock()
	}
	return nil
}
