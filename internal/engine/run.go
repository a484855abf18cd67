package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// A run is in progress in a box of this process, or ended a moment ago. Its
// pump reads the events of its process, and only the pump finishes it.
type run struct {
	b       *box
	input   bool // the program has an input
	log     *runLog
	room    *logRoom   // of the log and the results
	codeDir string     // directory of its code, to be removed; "" if there is none
	plain   bool       // a shell command that runs without a shell
	x       *execution // nil unless the run is in a context
	results *resultLog // results of a run in a context, and pictures of any run

	ctx     context.Context // of its stream
	cancel  context.CancelFunc
	release func() // its use of the box

	span, going *trace.Active // of the whole run, and of its program
	language    string        // of its runner; noLanguage for a command

	workspace *baseline    // nil without a workspace
	keeper    baselineFile // keeps workspace for the next process

	baseline chan struct{} // closed when before and counted are set
	before   driver.Incidents
	counted  bool

	reached       []sandbox.Destination // hosts that the sandbox reached before the run began
	countsReached bool

	done chan struct{} // closed when the run has finished, or is let go

	mu       sync.Mutex
	rec      store.Run // its identity and request never change
	deadline *time.Timer
	fate     fate
	broken   error
	left     bool // let go
}

// inputChunk is the most input, in bytes, that is sent at once.
const inputChunk = 256 << 10

// noLanguage is the language of a run that has none, or whose language is known
// only to another process.
const noLanguage = "none"

func (b *box) newRun(req sandbox.RunRequest) *run {
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
	r.room = &logRoom{pool: b.e.runningLogs, who: b.rec.Principal}
	r.log = newRunLog(r.files(), b.e.opts.LogSize)
	r.log.room = r.room
	r.results = &resultLog{files: r.files(), room: r.room}
	return r
}

func (r *run) files() logFiles { return logFiles{r.b.e.logs, r.b.id, r.rec.ID} }

// addRun adds r to the runs of the box.
func (b *box) addRun(r *run) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why != nil {
		return errStopped(b.id, b.why.cause)
	}
	if err := b.checkRoom(); err != nil {
		return err
	}
	b.runs[r.rec.ID] = r
	return nil
}

// checkRoom checks that the box may have one more run or forwarded request.
// b.mu is held.
func (b *box) checkRoom() error {
	if n := len(b.runs) + len(b.forwards) - b.ports; n >= b.e.opts.MaxRuns {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "there are %d runs in the sandbox, and there may be no more", n),
			"wait for some to finish, or use another sandbox")
	}
	return nil
}

// publish makes the run visible to other calls.
func (r *run) publish() {
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
	close(r.done)
	r.room.release()
	r.release()
}

// discard cleans up a run that failed to begin, even if the guest started a
// part of it.
func (r *run) discard() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.b.e.ctx), cleanupTimeout)
	defer cancel()
	defer r.drop()
	r.b.mu.Lock()
	stopping := r.b.why != nil
	r.b.mu.Unlock()
	if !stopping {
		// The start may have reached the guest even though no answer arrived.
		_, err := r.signal(ctx, fateNone)
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
func (r *run) pump(stream events) {
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
				end = asByShell(end)
			}
			stream.Close()
		case ev.Data != nil:
			r.take(ev.Data)
		}
	}
	r.mu.Lock()
	left := r.left
	r.mu.Unlock()
	if left && end == nil {
		r.b.mount.leave(r)
		r.closeLog()
		r.cancel()
		r.room.release()
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
	}{{stdout, d.Stdout}, {stdout, d.PTY}, {stderr, d.Stderr}} {
		r.mu.Lock()
		broken := r.broken != nil
		r.mu.Unlock()
		if len(out.data) == 0 || broken {
			continue
		}
		if err := r.log.append(out.stream, out.data); err != nil {
			r.b.e.log.Error("keep output", "run", r.rec.ID, "error", err)
			r.spoil(err)
		}
	}
}

// spoil ends a run whose output could not be kept. The fate is set at once, so
// it holds even if the run ends by itself before it is killed.
func (r *run) spoil(err error) {
	r.mu.Lock()
	if r.fate == fateNone {
		r.fate, r.broken = fateBroken, err
	}
	r.mu.Unlock()
	r.b.e.work(func() { r.kill(fateBroken, err) })
}

// reconnect attaches to the run's process again after its stream broke. It
// returns nil if there is no process left to attach to.
func (r *run) reconnect() events {
	for _, wait := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		select {
		case <-r.ctx.Done():
			return nil
		case <-time.After(wait):
		}
		r.b.mu.Lock()
		over := r.b.why != nil
		r.b.mu.Unlock()
		if over {
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

// finish settles and records the run's end.
func (r *run) finish(end *guestapi.EndEvent) {
	e := r.b.e
	r.setDeadline(0)
	r.going.End(nil)
	uncopied := r.copyWorkspace() // has its own timeout
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.b.e.ctx), cleanupTimeout)
	defer cancel()
	ctx, settling := trace.Start(trace.Into(ctx, r.ctx), "settle")
	defer r.span.End(nil)
	defer settling.End(nil)
	r.closeLog()
	changes := r.lookAtWorkspace(ctx)
	r.forgetBaseline()
	verdict, code, usage := r.judge(ctx, end)
	if uncopied != nil {
		verdict = unsaved(verdict, uncopied)
	}
	r.span.Set("verdict", string(verdict.Code))

	xs := r.log.extents()
	used := r.network(ctx)
	if verdict.Code == sandbox.Failed {
		advise(&verdict, r.b.policy(), used, r.lastWords(xs))
	}
	r.keepPreviews(changes)
	r.mu.Lock()
	r.rec.Network = used
	r.rec.Status, r.rec.Verdict, r.rec.ExitCode, r.rec.Usage = sandbox.RunFinished, verdict, code, usage
	r.rec.Ended, r.rec.Changes = e.now(), changes
	r.rec.StdoutBytes, r.rec.StderrBytes = xs[stdout].total, xs[stderr].total
	r.rec.KeptBytes = xs[stdout].kept() + xs[stderr].kept()
	r.rec.KeptBytes += r.results.kept()
	if r.x != nil {
		r.x.waits = nil
	}
	rec := r.rec
	r.mu.Unlock()
	var finished bool
	err := trace.Do(ctx, "record end", func(ctx context.Context) (err error) {
		finished, err = r.record(ctx, rec)
		return err
	})
	if err == nil && !finished {
		// Another process ended the sandbox, and the run with it.
		if stored, err := e.store.Run(ctx, rec.ID); err == nil {
			r.mu.Lock()
			r.rec.Verdict, r.rec.ExitCode = stored.Verdict, stored.ExitCode
			r.mu.Unlock()
		}
	}
	if err != nil {
		e.log.Error("record end of run", "run", rec.ID, "error", err)
		r.mu.Lock()
		r.rec.Verdict = unkept("result", err)
		r.mu.Unlock()
	}
	r.b.mu.Lock()
	delete(r.b.runs, rec.ID)
	stopping := r.b.why != nil
	r.b.mu.Unlock()
	e.opts.Metrics.RunEnded(r.language, r.verdict(), rec.Ended.Sub(rec.Started), rec.StdoutBytes, rec.StderrBytes)
	e.retire(rec.ID)
	e.keepLog(rec, r.room)
	close(r.done)
	r.cancel()
	if !stopping {
		r.cleanUp(ctx)
	}
	r.release()
}

// verdict returns the code of the run's current verdict.
func (r *run) verdict() sandbox.VerdictCode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rec.Verdict.Code
}

// record writes the run's end to the store, with a few retries. The end becomes
// visible only afterwards, because the next process must know it too.
func (r *run) record(ctx context.Context, rec store.Run) (finished bool, err error) {
	for _, wait := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 4 * time.Second} {
		if wait > 0 {
			select {
			case <-ctx.Done():
				return false, errors.Join(err, ctx.Err())
			case <-time.After(wait):
			}
		}
		// WithoutCancel: database/sql starts a goroutine for a context that can
		// end.
		finished, err = r.b.e.store.FinishRun(context.WithoutCancel(ctx), rec)
		if err == nil || !errors.Is(err, sandbox.Exhausted) {
			return finished, err
		}
	}
	return finished, err
}

// copyWorkspace copies the run's changes to the workspace, if the box has a
// copy of that, and returns why it could not. A box that is being stopped
// copies them itself.
func (r *run) copyWorkspace() error {
	b := r.b
	b.mu.Lock()
	stopping := b.why != nil
	b.mu.Unlock()
	if b.copy == nil || stopping {
		return nil
	}
	err := b.copy.out(context.WithoutCancel(b.e.ctx))
	if errors.Is(err, sandbox.Exhausted) {
		r.mu.Lock()
		if r.fate == fateNone {
			r.fate, r.broken = fateDiskFull, err
		}
		r.mu.Unlock()
		return nil
	}
	if err != nil {
		b.e.log.Error("copy workspace after a run", "run", r.rec.ID, "error", err)
		err = b.explain(context.WithoutCancel(b.e.ctx), err)
	}
	return err
}

// lookAtWorkspace returns what changed in the workspace. If the workspace is
// now over its quota, the run ends as disk-full, even if it ended before the
// watcher saw that.
func (r *run) lookAtWorkspace(ctx context.Context) *sandbox.Changes {
	changes, err := r.b.mount.end(ctx, r, r.workspace)
	if errors.Is(err, sandbox.Exhausted) {
		r.mu.Lock()
		if r.fate == fateNone {
			r.fate, r.broken = fateDiskFull, err
		}
		r.mu.Unlock()
	} else if err != nil {
		r.b.e.log.Error("look at workspace", "run", r.rec.ID, "error", err)
	}
	return changes
}

func (r *run) closeLog() {
	if err := r.log.close(); err != nil {
		r.b.e.log.Error("close log", "run", r.rec.ID, "error", err)
	}
}

// retire keeps a finished run in memory until keepFinished later ones have
// ended.
func (e *Engine) retire(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.finished = append(e.finished, id)
	if len(e.finished) > keepFinished {
		delete(e.runs, e.finished[0])
		e.finished = e.finished[1:]
	}
}

// judge collects the facts about the run's end and settles its verdict.
func (r *run) judge(ctx context.Context, end *guestapi.EndEvent) (sandbox.Verdict, *int, sandbox.Usage) {
	b := r.b
	r.mu.Lock()
	ending := ending{event: end, fate: r.fate, broken: r.broken, timeout: r.rec.Timeout, limits: b.rec.Limits}
	ending.lasted = b.e.now().Sub(r.rec.Started)
	if r.x != nil {
		ending.context, ending.exception = r.x.end, r.x.fail
	}
	r.mu.Unlock()
	if well := end != nil && end.Exited && end.ExitCode == 0; !well {
		b.mu.Lock()
		ending.why = b.why
		ending.alone = len(b.runs) == 1
		b.mu.Unlock()
		if r.baseline != nil {
			<-r.baseline
			ending.before, ending.counted = r.before, r.counted
		}
		if ending.counted && ending.why == nil {
			ending.after, ending.counted, _ = driver.ReadIncidents(ctx, b.drv)
			b.noteKills(ending.after)
		}
		if ending.fate == fateNone {
			// Another process may have killed it on behalf of its owner.
			if rec, err := b.e.store.Run(ctx, r.rec.ID); err == nil && rec.StopRequested {
				ending.fate = fateCancelled
			}
		}
	}
	verdict, code := settle(ending)
	return verdict, code, ending.usage()
}

// kill ends the run's process tree; the first fate counts. It returns when the
// run has finished or is let go. If the run does not end, kill begins to
// destroy its sandbox and returns.
func (r *run) kill(f fate, broken error) {
	r.mu.Lock()
	if r.fate == fateNone && r.rec.Status == sandbox.RunRunning && !r.left {
		r.fate, r.broken = f, broken
	}
	r.mu.Unlock()
	r.log.hurry()
	select {
	case <-r.done:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(r.ctx, killTimeout)
	defer cancel()
	// The call may outlast its context if the guest is stuck. The end of the
	// sandbox then ends the call.
	overdue := time.AfterFunc(killTimeout+endTimeout, func() { r.giveUp(errors.New("the call does not return")) })
	patience, err := r.signal(ctx, f)
	overdue.Stop()
	if err == nil || errors.Is(err, sandbox.NotFound) {
		select {
		case <-r.done:
			return
		case <-time.After(patience):
		}
	}
	r.giveUp(err)
}

// giveUp begins to destroy the sandbox of a run that cannot be ended, unless the
// run has ended or is let go.
func (r *run) giveUp(err error) {
	r.mu.Lock()
	left := r.left
	r.mu.Unlock()
	select {
	case <-r.done:
		return
	default:
		if left {
			return
		}
	}
	r.b.e.log.Error("the guest does not end a run; destroying its sandbox", "sandbox", r.b.id, "run", r.rec.ID, "error", err)
	r.b.beginStop(reason{
		cause: "the sandbox did not answer when a run was to be ended",
		code:  sandbox.SandboxLost,
		next:  "make a new sandbox",
	})
}

// wait waits until the run has finished.
func (r *run) wait(ctx context.Context) (sandbox.Run, error) {
	select {
	case <-r.done: // done has priority over ctx
		return r.state()
	default:
	}
	select {
	case <-r.done:
		return r.state()
	case <-ctx.Done():
		run, _ := r.state()
		return run, ctx.Err()
	}
}

// state returns the run as it stands, with an error if this process let it go.
func (r *run) state() (sandbox.Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.rec.Run
	if r.x != nil {
		run.Input = r.x.waits
	}
	if r.left && run.Status == sandbox.RunRunning {
		return run, errClosed()
	}
	return run, nil
}

// letGo begins to leave the run to the next process. The run is left when done
// is closed.
func (r *run) letGo() {
	r.mu.Lock()
	r.left = true
	r.mu.Unlock()
	r.setDeadline(0)
	r.log.hurry()
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
		r.deadline = time.AfterFunc(d, func() { r.b.e.spawn(func() { r.kill(fateTimeout, nil) }) })
	}
}
