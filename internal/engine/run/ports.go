package run

import (
	"context"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The pauses between two looks at the ports of a service. Most programs open their
// ports at their start, so the pause begins with the shortest one at each start.
const (
	shortestLook = time.Second
	longestLook  = 30 * time.Second
	// lookTime bounds one look.
	lookTime = 2 * time.Second
)

// watchPorts finds the ports of a service, in the background, until its run ends.
func (r *Run) watchPorts() {
	if r.svc != nil {
		r.set.opts.Work(r.followPorts)
	}
}

func (r *Run) followPorts() {
	pause := shortestLook
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.done:
			return
		case <-r.svc.looks:
			pause = shortestLook
		case <-time.After(pause):
			pause = min(2*pause, longestLook)
		}
		r.readPorts()
	}
}

// lookSoon makes followPorts look at once, and often again.
func (k *keeper) lookSoon() {
	select {
	case k.looks <- struct{}{}:
	default: // it will
	}
}

// readPorts records the ports of a service. It keeps the last ones if it cannot find
// the present ones.
func (r *Run) readPorts() {
	ports, ok := r.findPorts()
	if !ok {
		return
	}
	r.mu.Lock()
	same := slices.Equal(r.rec.Service.Ports, ports)
	r.mu.Unlock()
	if !same {
		r.setService(func(s *sandbox.Service) { s.Ports = ports })
	}
}

// findPorts returns the ports on which the processes of a service listen. It reports
// false if the sandbox rests, or if the guest cannot tell.
func (r *Run) findPorts() (ports []int, ok bool) {
	done, awake := r.in.Life.StayAwake()
	if !awake {
		return nil, false
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.ctx, lookTime)
	defer cancel()
	ports, err := r.in.Guest.Listening(ctx, r.selector())
	if err != nil {
		r.set.opts.Log.Debug("find ports of service", "run", r.rec.ID, "error", err)
		return nil, false
	}
	return ports, true
}
