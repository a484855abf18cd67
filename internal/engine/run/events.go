package run

import (
	"fmt"
	"strconv"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// heard keeps an event of the run's program, other than its end. Most kinds are
// events of contexts only; a guest that sends one for a process is ignored.
func (r *Run) heard(ev *guestapi.Event) {
	if r.x == nil {
		if ev.Data != nil {
			r.take(ev.Data)
		}
		return
	}
	if ev.Late == nil {
		r.x.late = ""
	}
	switch {
	case ev.Data != nil && ev.Late != nil:
		r.takeLate(ev.Data, ev.Late)
	case ev.Data != nil:
		r.take(ev.Data)
	case ev.Result != nil:
		r.show(ev.Result)
	case ev.Turn != nil:
		r.began(ev.Turn.Count)
	case ev.Notice != "":
		r.setContext(func(c *sandbox.RunContext) { c.Notice = excerpt.Cut(ev.Notice, runlog.MaxErrorName) })
	case ev.Input != nil:
		r.mu.Lock()
		r.x.waits = &sandbox.InputRequest{Prompt: excerpt.Cut(ev.Input.Prompt, runlog.MaxErrorText), Password: ev.Input.Password}
		r.mu.Unlock()
		r.take(&guestapi.DataEvent{Stdout: []byte(ev.Input.Prompt)})
	case ev.Error != nil:
		r.failed(*ev.Error)
	}
}

// began records that the turn of the run has come, and starts its deadline. The
// guest keeps the timeout, and the engine ends the run if the guest does not.
// Only the first such event counts: later ones give the run no more time.
func (r *Run) began(count int) {
	r.setContext(func(c *sandbox.RunContext) { c.Count = max(count, 0) })
	r.mu.Lock()
	again := r.x.began
	r.x.began = true
	r.mu.Unlock()
	if !again {
		r.setDeadline(r.rec.Timeout + InterruptGrace + Backstop)
	}
}

// take writes output to the log. If the log fails, the run is ended, because
// output must not be lost silently.
func (r *Run) take(d *guestapi.DataEvent) {
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
			r.set.opts.Log.Error("keep output", "run", r.rec.ID, "error", err)
			r.spoil(err)
		}
	}
}

// takeLate writes output of an earlier run, or of a program that it left behind,
// to the log. A line before it marks the source.
func (r *Run) takeLate(d *guestapi.DataEvent, late *guestapi.Late) {
	stream := guestapi.Stdout
	if d.Stderr != nil {
		stream = guestapi.Stderr
	}
	if whose := string(stream) + strconv.Itoa(late.Run); r.x.late != whose || late.Dropped > 0 {
		r.x.late = whose
		mark := "[output of an earlier run in this context"
		if late.Dropped > 0 {
			mark += fmt.Sprintf("; %d bytes before this were dropped", late.Dropped)
		}
		mark += "]\n"
		if stream == guestapi.Stderr {
			r.take(&guestapi.DataEvent{Stderr: []byte(mark)})
		} else {
			r.take(&guestapi.DataEvent{Stdout: []byte(mark)})
		}
	}
	r.take(d)
}

// show keeps a result, with its position in the output. If it cannot be kept,
// the run is ended, as for output.
func (r *Run) show(res *sandbox.Result) {
	r.keptOrBroken(r.results.Add(r.cleanResult(*res)))
}

// cleanResult returns the guest's result without the invalid parts, at the present
// position in the output.
func (r *Run) cleanResult(res sandbox.Result) sandbox.Result {
	res = runlog.CleanResult(res)
	xs := r.log.Extents()
	res.Stdout, res.Stderr = xs[runlog.Stdout].Total, xs[runlog.Stderr].Total
	return res
}

func (r *Run) keptOrBroken(err error) {
	if err != nil {
		r.set.opts.Log.Error("keep results", "run", r.rec.ID, "error", err)
		r.spoil(err)
	}
}

// failed keeps the exception that ended the run, which is the first that the
// guest tells of. Its traceback is output too, for callers that read only the
// output.
func (r *Run) failed(e sandbox.RunError) {
	fail := runlog.CleanError(e)
	r.mu.Lock()
	if r.x.fail == nil {
		r.x.fail = &fail
	}
	r.mu.Unlock()
	r.keptOrBroken(r.results.Fail(fail))
	text := fail.Traceback
	if text == "" {
		text = fail.Name + ": " + fail.Value
	}
	if text[len(text)-1] != '\n' {
		text += "\n"
	}
	r.take(&guestapi.DataEvent{Stderr: []byte(text)})
}

// hasEnded keeps the state of the context that the end of the run tells of.
func (r *Run) hasEnded(end *guestapi.End) {
	if r.x == nil {
		return
	}
	r.mu.Lock()
	r.x.waits = nil
	r.mu.Unlock()
	r.setContext(func(c *sandbox.RunContext) { c.StateLost = end.StateLost })
}
