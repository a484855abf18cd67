// Package lease ends a guest that hears of no holder. The server that holds a
// sandbox sends terms to the guest, again and again; without new terms, the guest
// ends by the last ones.
//
// Only package guest imports it. [New] makes the one Lease of a guest, whose timer
// runs until the guest ends. Programs of the sandbox must not prolong it. Root of
// the sandbox may connect to the guest, and may stand between the guest and a later
// server. So terms are sealed with a key that only servers and the guest have. The
// seal covers a challenge, which the guest takes once and soon.
package lease

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// lateness is how late a timer may fire in a guest that runs. If the timer is later,
// the guest was stopped, or its machine was. Its holder was then perhaps unable to
// send terms, and gets one more hold for them.
const lateness = time.Second

// A Lease is the lease of a guest. Its methods are safe for concurrent use.
type Lease struct {
	over chan struct{} // closed when the lease is over

	mu        sync.Mutex
	key       []byte        // nil before the first terms
	challenge []byte        // nil if it was used
	asked     time.Time     // when the challenge was made
	hold      time.Duration // of the last terms
	ends      time.Time
	graced    bool // the last terms had the one more hold
	ended     bool
	timer     *time.Timer // nil if the lease has no end yet
}

// New returns a lease without terms. If no terms come in the time of unheld, the
// lease is over; 0 is no such limit.
func New(unheld time.Duration) *Lease {
	l := &Lease{over: make(chan struct{})}
	if unheld > 0 {
		l.set(guestapi.LeaseTerms{Hold: unheld})
	}
	return l
}

// Over returns a channel that is closed when the guest must end.
func (l *Lease) Over() <-chan struct{} { return l.over }

// Routes adds the lease's procedure.
func (l *Lease) Routes(mux *http.ServeMux) { mux.HandleFunc(guestapi.PathLease, rpc.Unary(l.serve)) }

func (l *Lease) serve(_ *http.Request, in *guestapi.LeaseRequest) (*guestapi.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(in.Terms) > 0 {
		if err := l.take(in); err != nil {
			return nil, err
		}
	}
	l.challenge, l.asked = make([]byte, guestapi.ChallengeBytes), time.Now()
	rand.Read(l.challenge)
	return &guestapi.LeaseReply{Challenge: l.challenge}, nil
}

// take sets the terms of a request, if it may. l.mu is held.
func (l *Lease) take(in *guestapi.LeaseRequest) error {
	var t guestapi.LeaseTerms
	if err := json.Unmarshal(in.Terms, &t); err != nil {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "terms: %v", err)
	}
	switch {
	case l.key == nil:
		if len(in.Key) != guestapi.LeaseKeyBytes {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "the first terms need a key of %d bytes, not of %d", guestapi.LeaseKeyBytes, len(in.Key))
		}
		l.key = in.Key
	case in.Key != nil:
		return rpc.Errorf(guestapi.CodeAlreadyExists, "the lease has a key")
	default:
		challenge := l.challenge
		l.challenge = nil
		if challenge == nil || time.Since(l.asked) > guestapi.ChallengeTime || !hmac.Equal(in.Seal, guestapi.SealLease(l.key, challenge, in.Terms)) {
			return rpc.Errorf(guestapi.CodeUnauthenticated, "the terms are not sealed with the lease's key and the last challenge")
		}
	}
	l.set(t)
	return nil
}

// set replaces the terms. l.mu is held, or no other goroutine knows l.
func (l *Lease) set(t guestapi.LeaseTerms) {
	l.hold, l.graced = max(t.Hold, 0), false
	l.rearm(t.Left())
}

func (l *Lease) rearm(left time.Duration) {
	l.ends = time.Now().Add(left)
	if l.timer == nil {
		l.timer = time.AfterFunc(left, l.due)
		return
	}
	l.timer.Reset(left)
}

// due ends the lease if its time has come: the timer may have fired just before
// other terms came.
func (l *Lease) due() {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := time.Since(l.ends)
	switch {
	case l.ended || late < 0:
	case late > lateness && !l.graced && l.hold > 0:
		l.graced = true
		l.rearm(l.hold)
	default:
		l.ended = true
		close(l.over)
	}
}
