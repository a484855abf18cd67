package guest

import (
	"net/http"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A kept run has a tag. It is known by its tag until a caller took its end. Its
// caller does not wait for its turn.

var errNoRun = rpc.Errorf(guestapi.CodeNotFound, "no such run")

// beginKept registers x and starts it. If its context is busy, x starts when its
// turn comes.
func (x *run) beginKept() error {
	e := x.e
	x.withdrawn = make(chan struct{})
	if err := e.g.contexts.keep(x); err != nil {
		return err
	}
	select {
	case <-e.turn:
	default:
		return x.queue()
	}
	if err := x.open(x.withdrawn); err != nil {
		e.turn <- struct{}{}
		e.g.contexts.forget(x)
		return err
	}
	x.start()
	return nil
}

// queue makes x wait for its turn in a goroutine.
func (x *run) queue() error {
	e := x.e
	e.mu.Lock()
	full := e.queued >= maxQueue
	if !full {
		e.queued++
	}
	e.mu.Unlock()
	if full {
		e.g.contexts.forget(x)
		return rpc.Errorf(guestapi.CodeResourceExhausted, "%d runs wait for context %q already", maxQueue, e.id)
	}
	go func() {
		x.await()
		e.mu.Lock()
		e.queued--
		e.mu.Unlock()
	}()
	return nil
}

// await waits for the turn of x, and starts it.
func (x *run) await() {
	e := x.e
	select {
	case <-x.withdrawn:
		x.neverBegan(guestapi.ExecutionEnd{Status: guestapi.EndInterrupted, Cause: "its turn had not come"})
		return
	case <-e.turn:
	}
	if err := x.open(x.withdrawn); err != nil {
		e.turn <- struct{}{}
		x.neverBegan(guestapi.ExecutionEnd{Status: guestapi.EndDied, StateLost: true, Cause: err.Error()})
		return
	}
	x.start()
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
	x.e.g.contexts.keepEnded(x)
}

// taken forgets a kept run after a caller took its end.
func (x *run) taken() {
	if x.req.Tag != "" {
		x.e.g.contexts.forget(x)
	}
}

// keep registers a kept run by its tag.
func (cs *contexts) keep(x *run) error {
	if len(x.req.Tag) > maxContextID {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "a tag has at most %d bytes", maxContextID)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byTag[x.req.Tag] != nil {
		return rpc.Errorf(guestapi.CodeAlreadyExists, "there is a run %q already", x.req.Tag)
	}
	cs.byTag[x.req.Tag] = x
	return nil
}

// keepEnded records that a kept run has ended. Beyond maxKept it forgets the run
// that ended first.
func (cs *contexts) keepEnded(x *run) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byTag[x.req.Tag] != x {
		return // its end was taken
	}
	cs.ended = append(cs.ended, x)
	if len(cs.ended) > maxKept {
		delete(cs.byTag, cs.ended[0].req.Tag)
		cs.ended = cs.ended[1:]
	}
}

func (cs *contexts) forget(x *run) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byTag[x.req.Tag] == x {
		delete(cs.byTag, x.req.Tag)
	}
	cs.ended = slices.DeleteFunc(cs.ended, func(o *run) bool { return o == x })
}

func (cs *contexts) kept(r *http.Request) (*run, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if x := cs.byTag[r.PathValue("tag")]; x != nil {
		return x, nil
	}
	return nil, errNoRun
}

// connectRun serves POST /executions/{tag}/connect.
func (g *Guest) connectRun(w http.ResponseWriter, r *http.Request) {
	x, err := g.contexts.kept(r)
	if err != nil {
		rpc.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", guestapi.ContentTypeEvents)
	x.wake() // events may be waiting
	x.carry(w, r)
}

func (g *Guest) interruptRun(r *http.Request, in *guestapi.InterruptRequest) (*struct{}, error) {
	x, err := g.contexts.kept(r)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	begun := x.begun
	if !begun {
		x.why.Stopped = true
		if !x.isWithdrawn {
			x.isWithdrawn = true
			close(x.withdrawn)
		}
	}
	x.mu.Unlock()
	if begun {
		x.stop(in)
	}
	return &struct{}{}, nil
}

func (g *Guest) runInput(r *http.Request, in *guestapi.InputRequest) (*struct{}, error) {
	x, err := g.contexts.kept(r)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	ready, finished := x.begun, x.finished
	x.mu.Unlock()
	switch {
	case finished:
		return nil, rpc.Errorf(guestapi.CodeAborted, "the run has ended")
	case !ready && x.e.program.Shell:
		return nil, rpc.Errorf(guestapi.CodeAborted, "the run's turn has not come")
	}
	return &struct{}{}, x.input(in)
}
