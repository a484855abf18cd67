package guest

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
)

const (
	// maxStdin bounds the input that a run has not asked for yet.
	maxStdin = 1 << 20
	// maxUnsent bounds the unsent events of a run.
	maxUnsent = 1 << 20
	// smallCode surely fits into the pipe of a kernel that has read all before.
	smallCode = 8 << 10
	// maxGreeting bounds how long the first events wait for more.
	maxGreeting = 20 * time.Millisecond
	// maxShellInput bounds how long a write of input waits for a shell.
	maxShellInput = 10 * time.Second
)

// A run is one execution in a context. Its events go to one caller. If the
// caller leaves, the events are dropped and the run is interrupted. A kept run
// goes on, and its events wait for another caller.
type run struct {
	e   *evaluator
	k   *interpreter // set before it begins
	id  int
	req *guestapi.ExecuteRequest

	over bool // its end was reported; guarded by e.mu

	withdrawn chan struct{} // of a kept run: closed if it must not begin
	hurried   chan struct{} // closed to stop the making of previews

	// The number of previews, and the time they took; guarded by k.order.
	previews   int
	previewing time.Duration

	mu          sync.Mutex
	space       sync.Cond     // signalled when unsent shrinks, or the caller is gone
	unsent      []byte        // events, encoded
	news        chan struct{} // has a value when there may be something in unsent
	gone        bool          // the caller has left
	begun       bool          // its turn has come
	isWithdrawn bool          // withdrawn is closed
	isHurried   bool          // hurried is closed
	carrier     chan struct{} // closed when another caller takes the events
	finished    bool          // the end is in unsent
	cause       string
	why         guestapi.ExecutionEnd // the reasons of an interrupt
	killed      bool
	// held is the end of a run whose shell executes itself anew. It is sent when
	// the shell is ready, because the next run cannot begin before.
	held    *guestapi.ExecutionEnd
	timers  []*time.Timer
	failed  bool   // the error was sent
	failure string // its text, from which ended finds the reason
	began   time.Time
	cpu     time.Duration // processor time of the interpreter at the begin

	stdin struct {
		text    []byte
		eof     bool
		waiting bool
	}
}

// execute serves POST /execute.
func (g *Guest) execute(w http.ResponseWriter, r *http.Request) {
	req := new(guestapi.ExecuteRequest)
	if err := rpc.ReadJSON(w, r, req); err != nil {
		rpc.WriteError(w, err)
		return
	}
	x, err := g.begin(r, req)
	if err != nil {
		rpc.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", guestapi.ContentTypeEvents)
	x.carry(w, r)
}

// begin waits for the context's turn and starts a run.
func (g *Guest) begin(r *http.Request, req *guestapi.ExecuteRequest) (*run, error) {
	e, err := g.contexts.resolve(rpc.User(r), req)
	if err != nil {
		return nil, err
	}
	if e.program.Shell {
		if strings.IndexByte(req.Code, 0) >= 0 {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "code of a shell has no NUL byte")
		}
	}
	if err := e.checkEnv(req.EnvVars); err != nil {
		return nil, err
	}
	x := &run{e: e, req: req, news: make(chan struct{}, 1), hurried: make(chan struct{})}
	x.space.L = &x.mu
	if req.Tag != "" {
		return x, x.beginKept()
	}
	select {
	case <-e.turn:
	case <-r.Context().Done():
		return nil, rpc.Errorf(guestapi.CodeCanceled, "the caller left before its turn")
	}
	if err := x.open(r.Context().Done()); err != nil {
		e.turn <- struct{}{}
		return nil, err
	}
	x.start()
	return x, nil
}

// open gives x the context's interpreter, and starts one if there is none. The
// caller holds the context's turn.
func (x *run) open(done <-chan struct{}) error {
	for {
		k, err := x.e.ensure(done)
		if err != nil {
			return err
		}
		x.k, x.began, x.cpu = k, time.Now(), k.cpu()
		if x.enter() {
			return nil
		}
		// The interpreter died meanwhile; start another.
	}
}

// start starts a run that has its turn. If it was withdrawn, start ends it.
func (x *run) start() {
	x.mu.Lock()
	x.begun = !x.isWithdrawn
	begun := x.begun
	x.mu.Unlock()
	if !begun {
		x.finish(guestapi.ExecutionEnd{Status: guestapi.EndInterrupted, Cause: "its turn had just come"})
		return
	}
	if d := x.req.TimeoutMillis; d > 0 {
		x.after(time.Duration(d)*time.Millisecond, func() {
			x.interrupt(func(end *guestapi.ExecutionEnd) { end.TimedOut = true }, grace(x.req.GraceMillis))
		})
	}
	if len(x.req.Code) < smallCode {
		x.handOver()
	} else {
		// In a goroutine: the deadline ends a kernel that does not read.
		go x.handOver()
	}
}

// enter makes x the run under way and sends its first events. It returns false
// if the interpreter is gone.
func (x *run) enter() bool {
	e, k := x.e, x.k
	k.order.Lock()
	defer k.order.Unlock()
	// Output that was written before belongs to earlier runs.
	k.drainOutputs()
	e.mu.Lock()
	if e.live != k {
		e.mu.Unlock()
		return false
	}
	e.runs++
	k.runs++
	x.id = e.runs
	late, lost := e.late, e.lost
	e.late, e.lost = lateOutput{}, ""
	e.run = x
	e.mu.Unlock()
	x.greet(lost, &late)
	return true
}

// greet sends the first events of a run.
func (x *run) greet(lost string, late *lateOutput) {
	defer func() {
		select {
		case <-x.news: // the events wait for more: see carry
		default:
		}
	}()
	if lost != "" {
		x.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteNotice, Text: lost + "; state lost; started fresh"})
	}
	for i, p := range late.pieces {
		ev := &guestapi.ExecuteEvent{Type: guestapi.ExecuteLate, Stream: p.stream, Run: p.run, Text: toText(p.data)}
		if i == 0 {
			ev.Dropped = late.dropped
		}
		x.send(ev)
	}
	for _, r := range late.results {
		x.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteLate, Result: x.withPreviews(&guestapi.Result{Data: r.Data, Late: max(r.ID, 1)})})
	}
	x.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteCount, ExecutionCount: x.k.runs})
}

// handOver hands the code to the kernel.
func (x *run) handOver() {
	x.e.mu.Lock()
	base := x.e.base
	x.e.base = nil
	x.e.mu.Unlock()
	r := kernels.Run{ID: x.id, Code: x.req.Code, Env: x.req.EnvVars, Base: base, Stdin: x.req.Stdin}
	if x.e.program.Shell {
		if err := x.k.setCode([]byte(r.Code)); err != nil {
			x.interrupt(func(*guestapi.ExecutionEnd) {}, 0)
			return
		}
	}
	// If the write fails, the interpreter is dead; follow reports that.
	_ = x.k.request(x.e.program.Run(r))
}

// after calls f later, unless the run has ended.
func (x *run) after(d time.Duration, f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.finished {
		x.timers = append(x.timers, time.AfterFunc(d, f))
	}
}

// doom marks a run whose interpreter is about to be killed. A cause, if not
// empty, goes into the run's end. Events of the run no longer wait for its
// caller.
func (x *run) doom(cause string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.killed = true
	x.hurry()
	if x.cause == "" {
		x.cause = cause
	}
	x.space.Broadcast()
}

// interrupt sends SIGINT to a run at once and after half the grace. After the
// grace it kills the context's interpreter.
func (x *run) interrupt(why func(*guestapi.ExecutionEnd), grace time.Duration) {
	x.mu.Lock()
	why(&x.why)
	x.hurry()
	x.mu.Unlock()
	if grace <= 0 {
		x.kill()
		return
	}
	x.signal()
	x.after(grace/2, x.signal)
	x.after(grace, x.kill)
}

// stop serves an InterruptRequest.
func (x *run) stop(in *guestapi.InterruptRequest) {
	patience := grace(in.GraceMillis)
	if in.Kill {
		patience = 0
	}
	x.interrupt(func(end *guestapi.ExecutionEnd) { end.Stopped = true }, patience)
}

// signal sends SIGINT to the interpreter's process group, as a terminal would.
func (x *run) signal() {
	// e.mu keeps the run from ending. Otherwise the signal could hit the next
	// run.
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	if !x.over {
		_ = x.e.g.children.signal(x.k.p.child, unix.SIGINT, true)
	}
}

// kill ends the context's interpreter and every process that it started.
func (x *run) kill() {
	x.e.mu.Lock()
	over := x.over
	x.e.mu.Unlock()
	if over {
		return
	}
	x.doom("")
	p := x.k.p
	p.limitHit.Store(p.limitHit.Load() || x.e.g.atProcessLimit())
	_ = x.e.g.killTree(p) // the end counts the survivors
}

// input takes input for a run.
func (x *run) input(in *guestapi.InputRequest) error {
	if !x.req.Stdin {
		return rpc.Errorf(guestapi.CodeAborted, "the run takes no input")
	}
	if x.e.program.Shell {
		return x.shellInput(in)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stdin.eof {
		return rpc.Errorf(guestapi.CodeAborted, "the run's input has ended")
	}
	if len(x.stdin.text)+len(in.Text) > maxStdin {
		return rpc.Errorf(guestapi.CodeResourceExhausted, "the run has %d bytes of input that it did not ask for", len(x.stdin.text))
	}
	x.stdin.text = append(x.stdin.text, in.Text...)
	x.stdin.eof = in.EOF
	x.answer()
	return nil
}

// shellInput writes to the pipe from which a shell's programs read.
func (x *run) shellInput(in *guestapi.InputRequest) error {
	x.k.stdin.SetWriteDeadline(time.Now().Add(maxShellInput))
	if _, err := x.k.stdin.WriteString(in.Text); err != nil {
		if isClosed(err) {
			return rpc.Errorf(guestapi.CodeAborted, "the run's input has ended")
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return rpc.Errorf(guestapi.CodeResourceExhausted, "the run does not read its input")
		}
		return rpc.Errorf(guestapi.CodeInternal, "write input: %v", err)
	}
	if in.EOF {
		x.k.stdin.Close()
	}
	return nil
}

// answer sends a line to a kernel that waits for input, if there is one. x.mu is
// held.
func (x *run) answer() {
	if !x.stdin.waiting {
		return
	}
	i := bytes.IndexByte(x.stdin.text, '\n')
	eof := false
	var line string
	switch {
	case i >= 0:
		line, x.stdin.text = string(x.stdin.text[:i+1]), x.stdin.text[i+1:]
	case x.stdin.eof:
		line, x.stdin.text = string(x.stdin.text), nil
		eof = line == ""
	default:
		return
	}
	x.stdin.waiting = false
	b := x.e.program.Input(x.id, strings.ToValidUTF8(line, "\uFFFD"), eof)
	go func() { _ = x.k.request(b) }()
}

// handle acts on an event of the kernel. k.order is held.
func (x *run) handle(ev *kernels.Event) {
	switch ev.Ev {
	case "result":
		x.send(&guestapi.ExecuteEvent{Result: x.withPreviews(&guestapi.Result{Data: ev.Data, Main: ev.Main})})
	case "error":
		x.mu.Lock()
		again := x.failed
		if !again {
			x.failed, x.failure = true, ev.Name+": "+ev.Value
		}
		x.mu.Unlock()
		if again { // such as of a second callback: only one is kept, so it is output
			x.text(guestapi.Stderr, []byte(strings.TrimSuffix(ev.Traceback, "\n")+"\n"))
			return
		}
		x.send(&guestapi.ExecuteEvent{Error: &guestapi.RunError{
			Name: ev.Name, Value: ev.Value, Traceback: ev.Traceback, Line: ev.Line, Source: ev.Text,
		}})
	case "input":
		x.mu.Lock()
		x.stdin.waiting = true
		x.answer()
		waits := x.stdin.waiting
		x.mu.Unlock()
		if waits {
			x.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteInput, Prompt: ev.Prompt, Password: ev.Password})
		}
	case "end":
		if len(ev.Result) > 0 {
			x.send(&guestapi.ExecuteEvent{Result: x.withPreviews(&guestapi.Result{Data: ev.Result, Main: true})})
		}
		x.ended(ev)
	}
}

// ended ends a run whose interpreter is still alive. k.order is held.
func (x *run) ended(ev *kernels.Event) {
	x.k.flushOutputs()
	end := guestapi.ExecutionEnd{Status: ev.Status, ExitCode: ev.ExitCode}
	d := &end.Detail
	if end.Status == guestapi.EndError || end.Status == guestapi.EndExit {
		x.mu.Lock()
		text := x.failure
		x.mu.Unlock()
		if end.Status == guestapi.EndExit {
			text = x.k.p.out.text()
		}
		d.DiskFull = tellsAny(text, diskTexts) || diskFull(x.k.p.cwd)
		d.ProcessLimit = tellsAny(text, forkTexts) || x.e.g.atProcessLimit()
		d.MemoryKill = tellsAny(text, memoryTexts) || x.e.g.sawOOMKill()
	}
	if ev.Spawned == nil || *ev.Spawned {
		end.Children = x.k.children()
	}
	if ev.Restart {
		x.mu.Lock()
		x.held = &end
		x.mu.Unlock()
		x.restart()
		return
	}
	x.finish(end)
}

// resumed ends a run whose shell has executed itself anew.
func (x *run) resumed() {
	x.mu.Lock()
	end := x.held
	x.mu.Unlock()
	if end != nil {
		x.finish(*end)
	}
}

// restart restores the state of a shell that executes itself anew.
func (x *run) restart() {
	k := x.k
	saved, err := k.savedCode(len(x.req.Code))
	if err == nil {
		err = k.setCode(saved)
	}
	again := x.e.program.Restart(k.command, k.key)
	go func() {
		if err == nil {
			err = k.request(again)
		}
		if err != nil {
			_ = x.e.g.killTree(k.p)
		}
	}()
}

// died ends a run whose interpreter is gone.
func (x *run) died(ended *guestapi.EndEvent, cause string) {
	end := guestapi.ExecutionEnd{
		Status: guestapi.EndDied, StateLost: true, Cause: cause, Signal: ended.Detail.Signal, Detail: *ended.Detail,
	}
	if ended.Exited {
		code := int(ended.ExitCode)
		end.ExitCode = &code
		if x.e.program.Shell && code >= 0 {
			// The code ended the shell, as scripts do.
			end.Status = guestapi.EndExit
			if code == 0 {
				end.Status = guestapi.EndOK
			}
		}
	}
	x.finish(end)
}

// finish sends the end and frees the turn for the next run.
func (x *run) finish(end guestapi.ExecutionEnd) {
	x.e.mu.Lock()
	if x.over {
		x.e.mu.Unlock()
		return
	}
	x.over = true
	x.e.run = nil
	x.e.mu.Unlock()

	x.mu.Lock()
	end.TimedOut, end.Stopped, end.Left = x.why.TimedOut, x.why.Stopped, x.why.Left
	end.Killed = x.killed && end.StateLost
	end.Detail.TimedOut = end.TimedOut
	if x.cause != "" && end.StateLost {
		end.Cause = x.cause
	}
	if (end.TimedOut || end.Stopped || end.Left) && end.Status == guestapi.EndExit && end.ExitCode != nil && *end.ExitCode == 128+int(unix.SIGINT) {
		end.Status = guestapi.EndInterrupted
	}
	timers := x.timers
	x.timers = nil
	x.mu.Unlock()
	for _, t := range timers {
		t.Stop()
	}
	if !end.StateLost {
		end.Detail.CPUMillis = (x.k.cpu() - x.cpu).Milliseconds()
		end.Detail.PeakMemoryBytes = x.k.peak(time.Since(x.began))
	}
	x.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteEnd, End: &end})
	x.mu.Lock()
	x.finished = true
	x.mu.Unlock()
	x.wake()
	x.e.turn <- struct{}{}
	if x.req.Tag != "" {
		x.e.g.contexts.keepEnded(x)
	}
}

// toText returns data as valid UTF-8.
func toText(data []byte) string { return strings.ToValidUTF8(string(data), "\uFFFD") }
