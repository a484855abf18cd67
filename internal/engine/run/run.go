package run

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// noLanguage is the language of a run that has none, or whose language is known
// only to another process.
const noLanguage = "none"

// A Run is in progress in a sandbox of this process, or ended a moment ago. Its
// pump reads the events of its program, and only the pump finishes it.
type Run struct {
	in      *Sandbox
	set     *Set // of in
	input   bool // the program has an input
	fresh   bool // its sandbox was made for it
	log     *runlog.Log
	room    *runlog.Room    // of the log and the results
	codeDir string          // directory of its code, to be removed; "" if there is none
	plots   *plots          // nil unless the figures of its program are results
	plain   bool            // a shell command that runs without a shell
	x       *execution      // nil unless the run is in a context
	svc     *keeper         // nil unless the run is a service
	results *runlog.Results // results of a run in a context, and plots and pictures of any run

	ctx     context.Context // of its stream
	cancel  context.CancelFunc
	release func() // its use of the sandbox

	span, going *trace.Active // of the whole run, and of its program
	language    string        // of its runner; noLanguage for a command

	workspace *mount.Baseline // nil without a workspace
	keeper    baselineFile    // keeps workspace for the next process

	baseline chan struct{} // closed when before and counted are set
	before   driver.Incidents
	counted  bool

	reached       []sandbox.Destination // hosts that the sandbox reached before the run began
	countsReached bool

	done chan struct{} // closed when the run has finished, or is let go

	undoing atomic.Bool // its program has ended, and the sandbox returns to the state from before

	mu       sync.Mutex
	rec      store.Run // its identity and request never change
	state    state
	deadline *time.Timer
	fate     verdict.Fate
	broken   error
}

func (s *Sandbox) newRun(o Order) *Run {
	req := o.Request
	r := &Run{
		in: s, set: s.set,
		language: noLanguage,

		input: req.Stdin != nil || req.KeepStdin || req.PTY != nil,
		fresh: req.SandboxID == "",
		done:  make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(r.set.ctx)
	r.rec = store.Run{
		Principal:  s.Principal,
		Timeout:    req.Timeout,
		Terminal:   req.PTY != nil,
		KeepsStdin: req.KeepStdin || req.PTY != nil,
		Key:        req.Key,
		Undo:       o.Undo,
	}
	r.rec.ID, r.rec.SandboxID = r.set.opts.Shard.NewRunID(), s.ID
	r.rec.Status, r.rec.Started = sandbox.RunRunning, r.set.opts.Now()
	r.rec.Program, r.rec.ProgramBytes = request.Program(req)
	r.room = runlog.NewRoom(r.set.opts.RunningLogs, s.Principal)
	if req.Service != nil {
		r.newService(req.Service)
	}
	r.log = runlog.New(r.Files(), r.logSize(req.Service != nil), r.room)
	r.results = runlog.NewResults(r.Files(), r.room)
	return r
}

// ID returns the identifier of the run.
func (r *Run) ID() string { return r.rec.ID }

// Principal returns the principal that owns the run.
func (r *Run) Principal() sandbox.Principal { return r.rec.Principal }

// KeepsStdin reports whether the input of the program stays open for SendInput.
func (r *Run) KeepsStdin() bool { return r.rec.KeepsStdin }

// HasTerminal reports whether the program has a terminal.
func (r *Run) HasTerminal() bool { return r.rec.Terminal }

// Done is closed when the run has finished, was let go, or never began.
func (r *Run) Done() <-chan struct{} { return r.done }

// Files names the files of the run.
func (r *Run) Files() runlog.Files { return runlog.FilesOf(r.set.opts.Logs, r.in.ID, r.rec.ID) }

// Extents returns the present extent of each stream of the output.
func (r *Run) Extents() [runlog.Streams]runlog.Extent { return r.log.Extents() }

// Follow calls f with all output, as [runlog.Log.Follow] does.
func (r *Run) Follow(ctx context.Context, f func(stream sandbox.StreamName, data []byte) error) error {
	return r.log.Follow(ctx, f)
}

// Hurry makes the run wait for no follower of its output any more.
func (r *Run) Hurry() { r.log.Hurry() }

// publish makes the run visible to other calls.
func (r *Run) publish() {
	r.mu.Lock()
	if r.state == beginning { // else the engine lets it go already
		r.moveLocked(going)
	}
	r.mu.Unlock()
	r.set.add(r)
}

// drop forgets a run that never began.
func (r *Run) drop() {
	r.cancel()
	r.in.Life.Ended(r)
	r.move(dropped)
	close(r.done)
	r.room.Release()
	r.release()
}

// discard cleans up a run that failed to begin, even if the guest started a
// part of it.
func (r *Run) discard() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.set.ctx), cleanupTimeout)
	defer cancel()
	defer r.drop()
	defer r.forgetUndo(ctx)
	defer r.undo(ctx, true) // its start may have replaced a context
	if !r.in.stops() {
		// The start may have reached the guest even though no answer arrived.
		_, err := r.signal(ctx, verdict.FateNone)
		if err != nil && !errors.Is(err, sandbox.NotFound) {
			r.set.opts.Log.Warn("end run that did not begin", "run", r.rec.ID, "error", err)
		}
		r.cleanUp(ctx)
	}
	return r.set.opts.Records.DeleteRun(ctx, r.rec.ID)
}

func (r *Run) selector() guestapi.ProcessSelector {
	return guestapi.ProcessSelector{Tag: r.rec.ID}
}

// cleanUp removes the run's code from the sandbox.
func (r *Run) cleanUp(ctx context.Context) {
	if r.keepsStart() {
		err := r.in.Guest.Remove(ctx, r.startPath(), guestapi.FileOptions{User: sandbox.Root})
		if err != nil && !errors.Is(err, sandbox.NotFound) {
			r.set.opts.Log.Debug("remove start of service", "run", r.rec.ID, "error", err)
		}
	}
	if r.codeDir == "" {
		return
	}
	err := r.in.Guest.Remove(ctx, r.codeDir, guestapi.FileOptions{User: sandbox.Root})
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		r.set.opts.Log.Debug("remove code", "run", r.rec.ID, "error", err)
	}
}

// Wait waits until the run has finished. If ctx ends first, it returns the run as
// it stands and ctx's error.
func (r *Run) Wait(ctx context.Context) (sandbox.Run, error) {
	select {
	case <-r.done: // done has priority over ctx
		return r.View()
	default:
	}
	select {
	case <-r.done:
		return r.View()
	case <-ctx.Done():
		run, _ := r.View()
		return run, ctx.Err()
	}
}

// View returns the run as it stands, with an error if this process let it go.
func (r *Run) View() (sandbox.Run, error) {
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

// LetGo begins to leave the run to the next process. The run is left when Done is
// closed.
func (r *Run) LetGo() {
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

// EndWithin waits until the runs are done, for d at most, and reports whether
// they are.
func EndWithin(d time.Duration, runs []*Run) bool {
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

// setDeadline sets the run to be killed after d. Zero removes the deadline.
func (r *Run) setDeadline(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deadline != nil {
		r.deadline.Stop()
	}
	if d > 0 {
		r.deadline = time.AfterFunc(d, func() { r.set.opts.Spawn(func() { r.Kill(verdict.FateTimeout, nil) }) })
	}
}

// moveLocked makes next the state of the run. It refuses a move that may not be,
// and logs it, because that is a bug. r.mu is held.
func (r *Run) moveLocked(next state) bool {
	if !r.state.mayBecome(next) {
		r.set.opts.Log.Error("a state of a run cannot follow", "run", r.rec.ID, "state", r.state, "next", next)
		return false
	}
	r.state = next
	if next == finished {
		r.rec.Status = sandbox.RunFinished
		if r.rec.Service != nil {
			ended := *r.rec.Service // callers may hold it
			ended.State = sandbox.ServiceEnded
			r.rec.Service = &ended
		}
	}
	return true
}

// move is moveLocked with r.mu taken.
func (r *Run) move(next state) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moveLocked(next)
}

// leavesLocked reports whether this process lets the run go, or has let it go.
func (r *Run) leavesLocked() bool { return r.state == leaving || r.state == left }
