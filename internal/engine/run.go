package engine

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// inputChunk is the most input, in bytes, that is sent at once.
const inputChunk = 256 << 10

// noLanguage is the language of a run that has none, or whose language is known
// only to another process.
const noLanguage = "none"

func (b *liveSandbox) newRun(req sandbox.RunRequest) *run {
	r := &run{
		language: noLanguage,

		b:     b,
		input: req.Stdin != nil || req.KeepStdin || req.PTY != nil,
		done:  make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(b.e.ctx)
	r.rec = store.Run{
		Principal:  b.rec.Principal,
		Timeout:    req.Timeout,
		Terminal:   req.PTY != nil,
		KeepsStdin: req.KeepStdin || req.PTY != nil,
	}
	r.rec.ID, r.rec.SandboxID = sandbox.NewRunID(), b.id
	r.rec.Status, r.rec.Started = sandbox.RunRunning, b.e.now()
	r.rec.Program, r.rec.ProgramBytes = request.Program(req)
	r.room = runlog.NewRoom(b.e.runningLogs, b.rec.Principal)
	r.log = runlog.New(r.files(), b.e.opts.LogSize, r.room)
	r.results = runlog.NewResults(r.files(), r.room)
	return r
}

// addRun adds r to the runs of the box.
func (b *liveSandbox) addRun(r *run) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.stoppedLocked(); err != nil {
		return err
	}
	if err := b.checkRoomLocked(); err != nil {
		return err
	}
	b.runs[r.rec.ID] = r
	return nil
}

// checkRoomLocked checks that the box may have one more run or forwarded request.
// b.mu is held.
func (b *liveSandbox) checkRoomLocked() error {
	if n := len(b.runs) + len(b.forwards) - b.ports; n >= b.e.opts.MaxRuns {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "there are %d runs in the sandbox, and there may be no more", n),
			"wait for some to finish, or use another sandbox")
	}
	return nil
}

// publish makes the run visible to other calls.
func (r *run) publish() {
	r.mu.Lock()
	if r.state == beginning { // else the engine lets it go already
		r.moveLocked(going)
	}
	r.mu.Unlock()
	r.b.e.mu.Lock()
	defer r.b.e.mu.Unlock()
	r.b.e.runs[r.rec.ID] = r
}

// drop forgets a run that never began.
func (r *run) drop() {
	r.cancel()
	r.b.mu.Lock()
	delete(r.b.runs, r.rec.ID)
	r.b.mu.Unlock()
	r.move(dropped)
	close(r.done)
	r.room.Release()
	r.release()
}

// discard cleans up a run that failed to begin, even if the guest started a
// part of it.
func (r *run) discard() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.b.e.ctx), cleanupTimeout)
	defer cancel()
	defer r.drop()
	if !r.b.stops() {
		// The start may have reached the guest even though no answer arrived.
		_, err := r.signal(ctx, verdict.FateNone)
		if err != nil && !errors.Is(err, sandbox.NotFound) {
			r.b.e.log.Warn("end run that did not begin", "run", r.rec.ID, "error", err)
		}
		r.cleanUp(ctx)
	}
	return r.b.e.store.DeleteRun(ctx, r.rec.ID)
}

func (r *run) selector() guestapi.ProcessSelector {
	return guestapi.ProcessSelector{Tag: r.rec.ID}
}

// cleanUp removes the run's code from the sandbox.
func (r *run) cleanUp(ctx context.Context) {
	if r.codeDir == "" {
		return
	}
	err := r.b.guest.Remove(ctx, r.codeDir, guestapi.FileOptions{User: sandbox.Root})
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		r.b.e.log.Debug("remove code", "run", r.rec.ID, "error", err)
	}
}

// pump copies the run's output to its log until the run ends, and then finishes
// it.
func (r *run) pump(stream guestlink.Events) {
	var end *guestapi.EndEvent
	for end == nil && stream != nil {
		ev, err := stream.Next()
		switch {
		case err != nil:
			stream.Close()
			stream = r.reconnect()
		case ev.End != nil:
			end = ev.End
			if r.plain {
				end = verdict.AsByShell(end)
			}
			stream.Close()
		case ev.Data != nil:
			r.take(ev.Data)
		}
	}
	r.mu.Lock()
	leaves := r.leavesLocked() && end == nil
	if leaves {
		r.moveLocked(left)
	}
	r.mu.Unlock()
	if leaves {
		r.b.mount.Leave(r)
		r.closeLog()
		r.cancel()
		r.room.Release()
		close(r.done)
		return
	}
	r.finish(end)
}

// take writes output to the log. If the log fails, the run is ended, because
// output must not be lost silently.
func (r *run) take(d *guestapi.DataEvent) {
	for _, out := range []struct {
		stream int
		data   []byte
	}{{runlog.Stdout, d.Stdout}, {runlog.Stdout, d.PTY}, {runlog.Stderr, d.Stderr}} {
		r.mu.Lock()
		broken := r.broken != nil
		r.mu.Unlock()
		if len(out.data) == 0 || broken {
			continue
		}
		if err := r.log.Append(out.stream, out.data); err != nil {
			r.b.e.log.Error("keep output", "run", r.rec.ID, "error", err)
			r.spoil(err)
		}
	}
}

// spoil ends a run whose output could not be kept. The fate is set at once, so
// it holds even if the run ends by itself before it is killed.
func (r *run) spoil(err error) {
	r.mu.Lock()
	if r.fate == verdict.FateNone {
		r.fate, r.broken = verdict.FateBroken, err
	}
	r.mu.Unlock()
	r.b.e.work(func() { r.kill(verdict.FateBroken, err) })
}

// reconnect attaches to the run's process again after its stream broke. It
// returns nil if there is no process left to attach to.
func (r *run) reconnect() guestlink.Events {
	for _, wait := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		select {
		case <-r.ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if r.b.stops() {
			return nil
		}
		ctx, cancel := context.WithTimeout(r.ctx, endTimeout)
		dead := r.b.dead(ctx)
		cancel()
		if dead {
			r.b.lost()
			return nil
		}
		stream, err := r.connect()
		if err == nil || r.ctx.Err() != nil {
			return stream
		}
		r.b.e.log.Warn("attach to run again", "run", r.rec.ID, "error", err)
		if errors.Is(err, sandbox.NotFound) {
			return nil
		}
	}
	r.b.lost()
	return nil
}

// wait waits until the run has finished.
func (r *run) wait(ctx context.Context) (sandbox.Run, error) {
	select {
	case <-r.done: // done has priority over ctx
		return r.view()
	default:
	}
	select {
	case <-r.done:
		return r.view()
	case <-ctx.Done():
		run, _ := r.view()
		return run, ctx.Err()
	}
}

// view returns the run as it stands, with an error if this process let it go.
func (r *run) view() (sandbox.Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.rec.Run
	if r.x != nil {
		run.Input = r.x.waits
	}
	if r.leavesLocked() {
		return run, request.Closed()
	}
	return run, nil
}

// letGo begins to leave the run to the next process. The run is left when done
// is closed.
func (r *run) letGo() {
	r.mu.Lock()
	if r.state == beginning || r.state == going {
		r.moveLocked(leaving)
	}
	r.mu.Unlock()
	r.setDeadline(0)
	r.log.Hurry()
	r.keepBaseline()
	r.cancel()
}

// endWithin waits until the runs are done, for d at most, and reports whether
// they are.
func endWithin(d time.Duration, runs []*run) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for _, r := range runs {
		select {
		case <-r.done:
		case <-t.C:
			return false
		}
	}
	return true
}

// feed sends input to the program, and closes the input afterwards if eof is
// set. A program that ends before it has read all is no error.
func (r *run) feed(data []byte, eof bool) {
	if err := r.sendInput(r.ctx, data, eof); err != nil {
		r.b.e.log.Debug("send input", "run", r.rec.ID, "error", err)
	}
}

// closeInput ends the program's input. On a terminal it sends a key.
func (r *run) closeInput(ctx context.Context) error {
	if r.rec.Terminal {
		return r.b.guest.SendInput(ctx, r.selector(), []byte{endOfTransmission}, true)
	}
	return r.b.guest.CloseStdin(ctx, r.selector())
}

// endOfTransmission is the byte that Ctrl-D sends.
const endOfTransmission = 4

// setDeadline sets the run to be killed after d. Zero removes the deadline.
func (r *run) setDeadline(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deadline != nil {
		r.deadline.Stop()
	}
	if d > 0 {
		r.deadline = time.AfterFunc(d, func() { r.b.e.spawn(func() { r.kill(verdict.FateTimeout, nil) }) })
	}
}

// moveLocked makes next the state of the run. It refuses a move that may not be,
// and logs it, because that is a bug. r.mu is held.
func (r *run) moveLocked(next runState) bool {
	if !r.state.mayBecome(next) {
		r.b.e.log.Error("a state of a run cannot follow", "run", r.rec.ID, "state", r.state, "next", next)
		return false
	}
	r.state = next
	if next == finished {
		r.rec.Status = sandbox.RunFinished
	}
	return true
}

// move is moveLocked with r.mu taken.
func (r *run) move(next runState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moveLocked(next)
}

// leavesLocked reports whether this process lets the run go, or has let it go.
func (r *run) leavesLocked() bool { return r.state == leaving || r.state == left }
