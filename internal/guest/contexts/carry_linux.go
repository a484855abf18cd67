package contexts

import (
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// maxGreeting bounds how long the first events wait for more.
const maxGreeting = 20 * time.Millisecond

// carry sends the run's events until its end, until its caller leaves, or until
// another caller takes the events.
func (x *run) carry(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	interval := rpc.Keepalive(r)
	moved := make(chan struct{})
	x.mu.Lock()
	if x.carrier != nil {
		close(x.carrier)
	}
	x.carrier = moved
	begun := x.begun
	x.mu.Unlock()
	if !begun && rc.Flush() != nil { // its turn may come much later
		x.leave()
		return
	}
	// The first events wait for the events that follow soon.
	silent := time.NewTimer(maxGreeting)
	defer silent.Stop()
	greeting := true
	var spare []byte
	for {
		var alive bool
		select {
		case <-x.news:
		case <-silent.C:
			alive = true
		case <-moved:
			return
		case <-r.Context().Done():
			x.leave()
			return
		}
		silent.Reset(interval)
		x.mu.Lock()
		if x.carrier != moved {
			x.mu.Unlock()
			x.wake() // the value was for the other carrier
			return
		}
		b, over := x.unsent, x.finished
		x.unsent = spare[:0]
		x.space.Broadcast()
		x.mu.Unlock()
		if alive && len(b) == 0 && !greeting {
			b = append(b, `{"type":"keepalive"}`+"\n"...)
		}
		if len(b) > 0 {
			_, err := w.Write(b)
			if err == nil && !over { // returning flushes the last events
				err = rc.Flush()
			}
			if err != nil {
				x.leave()
				return
			}
		}
		if over {
			x.taken()
			return
		}
		greeting, spare = false, nil
		if cap(b) <= 2*maxUnsent {
			spare = b
		}
	}
}

// leave drops the run's events and interrupts it. A kept run goes on.
func (x *run) leave() {
	if x.req.Tag != "" {
		return
	}
	x.mu.Lock()
	x.gone = true
	x.unsent = nil
	x.space.Broadcast()
	over := x.finished
	x.mu.Unlock()
	if !over {
		x.interrupt(func(end *guestapi.ExecutionEnd) { end.Left = true }, grace(x.req.GraceMillis))
	}
}

// taken forgets a kept run after a caller took its end.
func (x *run) taken() {
	if x.req.Tag != "" {
		x.context.server.registry.forget(x)
	}
}
