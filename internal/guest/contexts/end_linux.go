package contexts

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
)

// endedLocked ends a run whose interpreter is still alive. The caller holds the
// interpreter's order.
func (x *run) endedLocked(ev *kernels.Event) {
	x.interpreter.flushOutputsLocked()
	end := guestapi.ExecutionEnd{Status: guestapi.EndStatus(ev.Status), ExitCode: ev.ExitCode}
	if end.Status == guestapi.EndError || end.Status == guestapi.EndExit {
		x.mu.Lock()
		text := x.failure
		x.mu.Unlock()
		if end.Status == guestapi.EndExit {
			text = x.interpreter.process.ErrorTail()
		}
		x.context.server.processes.DescribeFailure(x.interpreter.process, text, &end.Detail)
	}
	if ev.Spawned == nil || *ev.Spawned {
		end.Children = x.interpreter.children()
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
	it := x.interpreter
	saved, err := it.savedCode(len(x.req.Code))
	if err == nil {
		err = it.setCode(saved)
	}
	again := x.context.program.Restart(it.command, it.key)
	go func() {
		if err == nil {
			err = it.request(again)
		}
		if err != nil {
			_ = x.context.server.processes.Kill(it.process)
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
		if x.context.program.Shell && code >= 0 {
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
	x.context.mu.Lock()
	if x.over {
		x.context.mu.Unlock()
		return
	}
	x.over = true
	x.context.run = nil
	x.context.mu.Unlock()

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
		end.Detail.CPUMillis = (x.interpreter.cpu() - x.cpu).Milliseconds()
		end.Detail.PeakMemoryBytes = x.interpreter.peak(time.Since(x.began))
	}
	x.mu.Lock()
	told := x.failed
	x.mu.Unlock()
	if e := endError(x.context.program, &end); x.e2b && !told && e != nil {
		x.send(&guestapi.ExecuteEvent{Error: e})
	}
	x.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteEnd, End: &end})
	x.mu.Lock()
	x.finished = true
	x.mu.Unlock()
	x.wake()
	x.context.turn <- struct{}{}
	if x.req.Tag != "" {
		x.context.server.registry.keepEnded(x)
	}
}

// neverBegan ends a run that had no turn.
func (x *run) neverBegan(end guestapi.ExecutionEnd) {
	x.mu.Lock()
	end.TimedOut, end.Stopped = x.why.TimedOut, x.why.Stopped
	x.mu.Unlock()
	x.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteEnd, End: &end})
	x.mu.Lock()
	x.finished = true
	x.mu.Unlock()
	x.wake()
	x.context.server.registry.keepEnded(x)
}
