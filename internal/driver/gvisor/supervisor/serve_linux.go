package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/log"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// serve answers requests until the driver has ended. Then it destroys the attached
// boxes that this supervisor made.
func (s *supervisor) serve(conn *net.UnixConn) {
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	data := make([]byte, message.MaxRequest)
	for {
		req, files, err := message.Receive(conn, data)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				log.Warningf("receive request: %v", err)
			}
			break
		}
		if len(files) == 0 {
			continue
		}
		calls.Go(func() { s.answer(ctx, req, files) })
	}
	cancel()
	waitFor(&calls, lastCalls)
	s.mu.Lock()
	var attached []*box
	for _, b := range s.boxes {
		if !b.record.Spec.Detached && b.own {
			attached = append(attached, b)
		}
	}
	s.mu.Unlock()
	var ends sync.WaitGroup
	for _, b := range attached {
		ends.Go(func() {
			if _, err := s.destroy(b.record.Spec.ID); err != nil {
				log.Warningf("destroy %s: %v", b.record.Spec.ID, err)
			}
		})
	}
	ends.Wait()
	s.linger()
}

// lastCalls bounds how long requests may continue after the driver's end. A box
// that does not answer must not keep the others alive.
const lastCalls = 5 * time.Second

// waitFor waits for calls to end, for at most limit.
func waitFor(calls *sync.WaitGroup, limit time.Duration) {
	ended := make(chan struct{})
	go func() {
		calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(limit):
	}
}

// answer executes req and sends the reply on the first file.
func (s *supervisor) answer(ctx context.Context, req *message.Request, files []*os.File) {
	defer message.CloseAll(files[1:])
	conn, err := message.FileConn(files[0])
	if err != nil {
		log.Warningf("open reply stream: %v", err)
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		// The driver never writes here. End of file cancels the request.
		_, _ = conn.Read(make([]byte, 1))
		cancel()
	}()
	var rep message.Reply
	var spans trace.Recording
	if req.Trace {
		ctx = trace.With(ctx, spans.Take)
	}
	if err := s.do(ctx, req, files[1:], &rep); err != nil {
		rep = message.Reply{Err: message.NewError(err)}
	}
	rep.Version, rep.Spans = message.Version, spans.Spans()
	if err := json.NewEncoder(conn).Encode(&rep); err != nil && (req.Op == message.OpCreate || req.Op == message.OpCreateFrom) {
		// The driver does not know of the box, so it would leak.
		_, _ = s.destroy(req.Ref)
	}
}

// giveValues puts the values, which came separately, into secrets.
func giveValues(secrets []sandbox.Secret, values []string) error {
	if len(values) != len(secrets) {
		return sandbox.Errorf(sandbox.Invalid, "secrets without values")
	}
	for i, v := range values {
		secrets[i].Value = sandbox.NewSecretValue(v)
	}
	return nil
}

func (s *supervisor) do(ctx context.Context, req *message.Request, files []*os.File, rep *message.Reply) (err error) {
	if needsRef := req.Op != message.OpList && req.Op != message.OpProbe && req.Op != message.OpSnapshots; needsRef && !sandbox.ValidID(req.Ref) {
		if req.Op == message.OpDiscard {
			return nil // List does not return such a reference
		}
		return fmt.Errorf("%w: %q is not a reference", driver.ErrGone, req.Ref)
	}
	switch req.Op {
	case message.OpProbe:
		return s.probe()
	case message.OpCreate:
		if req.Spec == nil || req.Spec.ID != req.Ref {
			return sandbox.Errorf(sandbox.Invalid, "incomplete order")
		}
		trees := 0
		if req.FirstUser != 0 && req.Spec.Workspace != "" {
			trees = 1 + len(req.Spec.Mounts)
		}
		if n := len(files) - trees; n < 1 || n > message.MaxStreams {
			return sandbox.Errorf(sandbox.Invalid, "incomplete order")
		}
		if err := giveValues(req.Spec.Secrets, req.Secrets); err != nil {
			return err
		}
		if req.FirstUser != 0 && req.FirstUser != s.firstUser {
			return sandbox.Errorf(sandbox.Unavailable, "the process that makes sandboxes has other users for them than it was asked for")
		}
		streams := files[:len(files)-trees]
		var of []*rootfs.Tree
		for _, f := range files[len(streams):] {
			of = append(of, &rootfs.Tree{File: f})
		}
		return s.create(ctx, req, streams, of)
	case message.OpCreateFrom:
		rep.Build, err = s.createFrom(ctx, req, files)
		return err
	case message.OpSnapshots:
		rep.Refs, err = s.snapshots()
		return err
	case message.OpRemoveSnapshot:
		return s.removeSnapshot(req.Ref)
	case message.OpAttach:
		b, err := s.find(req.Ref)
		if err != nil {
			return err
		}
		if b.saved() {
			return nil
		}
		if !b.alive() {
			if !b.own {
				s.forget(req.Ref)
			}
			return fmt.Errorf("%w: its kernel does not run", driver.ErrGone)
		}
		if b.record.WatchMemory && b.watch == nil {
			rep.Sentry = b.sentry()
		}
		return nil
	case message.OpWatch:
		return s.watch(req.Ref, files)
	case message.OpDestroy, message.OpDiscard:
		rep.Usage, err = s.destroy(req.Ref)
		return err
	case message.OpUsage:
		rep.Usage, err = s.usage(req.Ref)
		return err
	case message.OpList:
		s.swept.Do(func() { go s.sweepBuilds() })
		rep.Refs, err = s.list()
		return err
	}
	b, err := s.find(req.Ref)
	if err != nil {
		return err
	}
	if sealedOp := req.Op == message.OpSaveSealed || req.Op == message.OpSnapshotSealed; sealedOp && len(req.StateKey) == 0 {
		return sandbox.Errorf(sandbox.Invalid, "no key to encrypt with")
	}
	switch req.Op {
	case message.OpDial:
		if len(files) != 1 {
			return sandbox.Errorf(sandbox.Invalid, "no stream to connect")
		}
		return b.dial(ctx, files[0])
	case message.OpReceipt:
		rep.Report, err = b.report(ctx)
	case message.OpIncidents:
		rep.Incidents, err = b.incidents()
	case message.OpUnnamed:
		rep.Sentry, rep.Workspace = b.sentry(), b.record.Spec.Workspace
		for _, m := range b.record.Spec.Mounts {
			if !m.ReadOnly {
				rep.Mounts = append(rep.Mounts, m.Dir)
			}
		}
	case message.OpTraffic:
		rep.Traffic, err = b.traffic(ctx, req.After)
	case message.OpAuthority:
		rep.Authority, err = b.authority(ctx)
	case message.OpSetNetwork:
		if err = giveValues(req.Rules, req.Secrets); err == nil {
			err = b.setNetwork(ctx, req)
		}
	case message.OpLease:
		if req.Lease == nil {
			return sandbox.Errorf(sandbox.Invalid, "no lease")
		}
		err = s.lease(b, *req.Lease)
	case message.OpPause:
		err = b.pause()
	case message.OpResume:
		if rep.Order, rep.Build, err = s.order(b); rep.Order == nil && err == nil {
			err = b.resume()
		}
	case message.OpSave, message.OpSaveSealed:
		if len(b.record.Spec.Mounts) > 0 {
			return sandbox.Errorf(sandbox.Unsupported, "a sandbox with several workspaces cannot be saved on disk")
		}
		rep.Saved, err = s.saveBox(ctx, b, "", req.StateKey)
	case message.OpSnapshot, message.OpSnapshotSealed:
		if len(b.record.Spec.Mounts) > 0 {
			return sandbox.Errorf(sandbox.Unsupported, "a sandbox with several workspaces has no snapshots")
		}
		rep.Snapshot, err = s.snapshot(ctx, b, req.Snapshot, req.StateKey)
	case message.OpRestore:
		err = s.restore(ctx, b, req, files)
	case message.OpRestart:
		err = s.restart(ctx, b, req, files)
	default:
		err = sandbox.Errorf(sandbox.Internal, "unknown operation %q", req.Op)
	}
	return err
}

// probe checks the requirements of a box. It runs in the supervisor, whose existence
// shows that namespaces can be made.
func (s *supervisor) probe() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return diagnosis.Unavailable("choose another with --state-dir", "state directory: %w", err)
	}
	if _, err := os.Stat(s.guest); err != nil {
		return diagnosis.Unavailable("reinstall glovebox", "guest: %w", err)
	}
	makeRoot, makeGuest := s.hostRoot, s.hostGuest
	if s.userRoot != nil {
		makeRoot, makeGuest = s.userRoot, s.userGuest
	}
	if _, err := makeRoot(); err != nil {
		return diagnosis.Unavailable("", "host image: %w", err)
	}
	if _, err := makeGuest(); err != nil {
		return diagnosis.Unavailable("", "guest: %w", err)
	}
	return nil
}
