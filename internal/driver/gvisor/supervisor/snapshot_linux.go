package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/builds"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/checkpoint"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
	"github.com/glovebox-dev/glovebox/internal/state"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// The snapshots are beside the boxes: a directory for each, by its identifier, with the
// state and its lock.

func (s *supervisor) snapshotsDir() string { return filepath.Join(s.dir, "snapshots") }

func (s *supervisor) snapshotState(id string) string {
	return filepath.Join(s.snapshotsDir(), id, "state")
}

// standingFile is in the directory of a box while that stands still for a snapshot. If
// its supervisor dies meanwhile, no process can make the box go on.
const standingFile = "standing"

func (b *box) stands() bool {
	_, err := os.Lstat(filepath.Join(b.dir, standingFile))
	return err == nil
}

func (b *box) endStanding() error {
	err := os.Remove(filepath.Join(b.dir, standingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// newWriter begins the state of a box that is about to be paused: its own, or that of a
// snapshot.
func (s *supervisor) newWriter(b *box, snapshot string, key sealed.Key) (*checkpoint.Writer, error) {
	if snapshot == "" {
		return checkpoint.NewWriter(b.stateDir(), key)
	}
	w, err := checkpoint.NewWriter(s.snapshotState(snapshot), key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(b.dir, standingFile), nil, 0o600); err != nil {
		return nil, errors.Join(err, w.Discard())
	}
	return w, nil
}

// snapshot keeps the state of a box as a snapshot.
func (s *supervisor) snapshot(ctx context.Context, b *box, id string, key sealed.Key) (*driver.Snapshot, error) {
	if !sandbox.ValidID(id) {
		return nil, sandbox.Errorf(sandbox.Invalid, "%q is not the identifier of a snapshot", id)
	}
	if err := os.MkdirAll(s.snapshotsDir(), 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(s.snapshotsDir(), id), 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, sandbox.Errorf(sandbox.Conflict, "a snapshot of that name exists")
		}
		return nil, err
	}
	saved, err := s.saveBox(ctx, b, id, key)
	if err != nil {
		// If gVisor still writes, its files go on without names.
		return nil, errors.Join(err, s.removeSnapshot(id))
	}
	return &driver.Snapshot{Bytes: saved.Bytes, Build: saved.Build, Stood: saved.Stood}, nil
}

// keepSnapshot has a box go on whose state is written, and completes the snapshot.
func (s *supervisor) keepSnapshot(b *box, w *checkpoint.Writer, m state.Manifest, id string, began time.Time, goOn func(error) error) (*driver.Saved, error) {
	err := goOn(nil)
	stood := time.Since(began)
	if err != nil {
		return nil, errors.Join(err, w.Discard())
	}
	m.Box = id
	if err := w.Commit(m); err != nil {
		return nil, errors.Join(err, w.Discard())
	}
	defer w.Close()
	if err := state.ShareBase(b.stateDir(), s.snapshotState(id)); err != nil {
		log.Warningf("the saved states of boxes from snapshot %s will be larger: %v", id, err)
	}
	return &driver.Saved{Bytes: w.Bytes(), Build: m.Key.Program, Stood: stood}, nil
}

// openSnapshot opens the state of a snapshot, which the caller closes.
func (s *supervisor) openSnapshot(id string, key sealed.Key) (*state.State, error) {
	if !sandbox.ValidID(id) || !state.Exists(s.snapshotState(id)) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no snapshot %q", id)
	}
	return state.Open(s.snapshotState(id), id, key)
}

// snapshots returns the identifiers of all snapshots.
func (s *supervisor) snapshots() (ids []string, err error) {
	entries, err := os.ReadDir(s.snapshotsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, e := range entries {
		if sandbox.ValidID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// removeSnapshot removes a snapshot. Sentries that read it have its files open.
func (s *supervisor) removeSnapshot(id string) error {
	return os.RemoveAll(filepath.Join(s.snapshotsDir(), id))
}

// createFrom makes a box with the state of a snapshot. If only another build can do that,
// it makes none and returns that build.
func (s *supervisor) createFrom(ctx context.Context, req *message.Request, files []*os.File) (other *builds.ID, err error) {
	spec := req.Spec
	if spec == nil || spec.ID != req.Ref || len(files) > 1 {
		return nil, sandbox.Errorf(sandbox.Invalid, "incomplete order")
	}
	if req.FirstUser != 0 && req.FirstUser != s.firstUser {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the process that makes sandboxes has other users for them than it was asked for")
	}
	if len(spec.Secrets) > 0 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a sandbox with secrets is not made from a snapshot: its programs do not know the authority of its network"),
			"make it with a network that has no secrets")
	}
	if len(spec.Mounts) > 0 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a sandbox with several workspaces is not made from a snapshot"),
			"make it with one workspace, or without a snapshot")
	}
	_, preparing := trace.Start(ctx, "prepare files")
	defer func() { preparing.End(err) }()
	from, err := s.openSnapshot(req.Snapshot, req.StateKey)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	b := s.newBox(req)
	here, err := s.keys.Of(&b.record)
	if err != nil {
		return nil, err
	}
	if id := buildOf(from.Manifest.Key); id != buildOf(here) {
		return &id, nil
	}
	plan, err := newPlan(s.groups, spec)
	if err != nil {
		return nil, err
	}
	if err := s.checkFits(b, from.Manifest, req.Root); err != nil {
		return nil, err
	}
	contents, err := from.Files(checkpoint.Files...)
	if err != nil {
		return nil, err
	}
	verified := make(chan error, 1)
	go func() { verified <- from.Verify() }()
	defer func() {
		if err != nil {
			<-verified // it reads files that are about to be closed
		}
	}()
	ended, err := endedStreams()
	if err != nil {
		return nil, err
	}
	defer message.CloseAll(ended)
	if err := s.reserve(b); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_, destroyErr := s.destroy(spec.ID)
			err = errors.Join(err, destroyErr)
		}
	}()
	if err := s.giveBase(b, req.Snapshot, from); err != nil {
		log.Warningf("the saved state of %s will be larger: %v", spec.ID, err)
	}
	if err := plan.apply(s.groups, b); err != nil {
		return nil, err
	}
	if spec.Lease != nil && spec.Detached {
		if err := s.lease(b, *spec.Lease); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var workspace *rootfs.Tree
	if len(files) == 1 {
		workspace = &rootfs.Tree{File: files[0]}
	}
	err = s.launch(ctx, b, launchOrder{
		image: req.Root, workspace: workspace, ended: ended, preparing: preparing,
		begin: func(*config.Config, *specs.Spec) error {
			_, err := s.readState(ctx, b, contents, verified)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	if err := b.setHostname(ctx); err != nil {
		return nil, err
	}
	_ = process.Signal(b.sentry(), spec.ID, sentry.GiveBackSignal) // loading leaves garbage
	s.mu.Lock()
	b.ready = true
	s.mu.Unlock()
	return nil, nil
}

// giveBase gives the states of a box a base: the snapshot that the box is made of, or the
// base of that snapshot.
func (s *supervisor) giveBase(b *box, snapshot string, from *state.State) error {
	if b.record.Spec.SharesSnapshot {
		return s.bases.Share(from, snapshot, message.PagesFile, b.stateDir())
	}
	return state.ShareBase(s.snapshotState(snapshot), b.stateDir())
}

// setHostname gives a box its hostname. gVisor restores the one of the snapshot.
func (b *box) setHostname(ctx context.Context) error {
	return b.execute(ctx, &control.ExecArgs{
		Argv:         []string{rootfs.GuestPath, "hostname", b.record.Spec.Hostname},
		Capabilities: &auth.TaskCapabilities{BoundingCaps: hostCaps, InheritableCaps: hostCaps, PermittedCaps: hostCaps, EffectiveCaps: hostCaps},
		FilePayload:  control.NewFilePayload(map[int]*os.File{0: b.null, 1: b.null, 2: b.null}, nil),
	})
}

// hostCaps are what a program needs to set the hostname of its own box.
var hostCaps = auth.CapabilitySetOf(linux.CAP_SYS_ADMIN)
