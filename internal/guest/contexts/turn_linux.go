package contexts

import (
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// smallCode surely fits into the pipe of a kernel that has read all before.
const smallCode = 8 << 10

// open gives x the context's interpreter, and starts one if there is none. The
// caller holds the context's turn.
func (x *run) open(done <-chan struct{}) error {
	for {
		it, err := x.context.ensure(done)
		if err != nil {
			return err
		}
		x.interpreter, x.began, x.cpu = it, time.Now(), it.cpu()
		x.context.server.watch(it.dir)
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
	c, it := x.context, x.interpreter
	it.order.Lock()
	defer it.order.Unlock()
	// Output that was written before belongs to earlier runs.
	it.drainOutputsLocked()
	c.mu.Lock()
	if c.live != it {
		c.mu.Unlock()
		return false
	}
	c.runs++
	it.runs++
	x.id = c.runs
	late, lost := c.late, c.lost
	c.late, c.lost = lateOutput{}, ""
	c.run = x
	c.mu.Unlock()
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
		x.send(&guestapi.ExecuteEvent{Run: max(r.ID, 1), Result: x.resultLocked(&sandbox.Result{Data: r.Data, Late: true})})
	}
	x.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteCount, ExecutionCount: x.interpreter.runs})
}

// handOver hands the code to the kernel.
func (x *run) handOver() {
	x.context.mu.Lock()
	base := x.context.base
	x.context.base = nil
	x.context.mu.Unlock()
	r := kernels.Run{ID: x.id, Code: x.req.Code, Env: x.req.EnvVars, Base: base, Stdin: x.req.Stdin, E2B: x.e2b}
	if p := x.interpreter.takePlace(); p != nil {
		r.Cwd, r.Base, r.Unset = p.dir, p.set, p.unset
	}
	if x.context.program.Shell {
		if err := x.interpreter.setCode([]byte(r.Code)); err != nil {
			x.interrupt(func(*guestapi.ExecutionEnd) {}, 0)
			return
		}
	}
	// If the write fails, the interpreter is dead; follow reports that.
	_ = x.interpreter.request(x.context.program.Run(r))
}

// toText returns data as valid UTF-8.
func toText(data []byte) string { return strings.ToValidUTF8(string(data), "\uFFFD") }
