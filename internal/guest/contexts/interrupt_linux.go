package contexts

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

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
	x.hurryLocked()
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
	x.hurryLocked()
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
	// The context's lock keeps the run from ending. Otherwise the signal could hit the next
	// run.
	x.context.mu.Lock()
	defer x.context.mu.Unlock()
	if !x.over {
		_ = x.interpreter.process.Signal(unix.SIGINT)
	}
}

// kill ends the context's interpreter and every process that it started.
func (x *run) kill() {
	x.context.mu.Lock()
	over := x.over
	x.context.mu.Unlock()
	if over {
		return
	}
	x.doom("")
	_ = x.context.server.processes.KillAsked(x.interpreter.process) // the end counts the survivors
}

// grace returns the time between an interrupt and the kill.
func grace(millis int64) time.Duration {
	if millis <= 0 {
		return guestapi.DefaultGrace
	}
	return min(time.Duration(millis)*time.Millisecond, time.Hour)
}
