package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on the records of a sandbox's DNS questions.
const (
	maxAnswers     = 1024 // names
	maxPins        = 4096 // addresses
	maxPinNames    = 32   // names of one address
	maxAddresses   = 8    // in one answer
	answerFor      = 30 * time.Second
	noAnswerFor    = 5 * time.Second
	resolveTimeout = 8 * time.Second
	// Limits on questions that go upstream. They are enough for a busy program,
	// and too low to carry much data in names.
	questionsPerSecond = 50
	questionsBurst     = 500
)

// answerSeconds is the time to live of answers.
const answerSeconds = uint32(answerFor / time.Second)

// names resolves names upstream, and remembers the addresses of each.
type names struct {
	resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)
	limit   *rate.Limiter

	mu      sync.Mutex
	answers map[string]*answer
	pins    map[netip.Addr]*pin
}

// An answer is the result for a name.
type answer struct {
	ready chan struct{} // closed when the other fields are set
	addrs []netip.Addr
	err   error
	until time.Time
}

// A pin is an address that the sandbox received in an answer.
type pin struct {
	names []string // the latest last
	used  time.Time
}

func newNames(resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)) *names {
	return &names{
		resolve: resolve,
		limit:   rate.NewLimiter(questionsPerSecond, questionsBurst),
		answers: map[string]*answer{},
		pins:    map[netip.Addr]*pin{},
	}
}

// errTooManyQuestions means that a sandbox exceeded its limit of questions.
var errTooManyQuestions = errors.New("too many questions")

// lookup returns the addresses of a name for which refused returns "". It also
// returns the reason why it left out other addresses.
func (n *names) lookup(ctx context.Context, name string, refused func(netip.Addr) sandbox.BlockReason) ([]netip.Addr, sandbox.BlockReason, error) {
	n.mu.Lock()
	a := n.answers[name]
	if a != nil && a.done() && time.Now().After(a.until) {
		a = nil
	}
	if a == nil {
		if !n.limit.Allow() || !n.makeRoom() {
			n.mu.Unlock()
			return nil, "", errTooManyQuestions
		}
		a = &answer{ready: make(chan struct{})}
		n.answers[name] = a
		go n.ask(name, a)
	}
	n.mu.Unlock()
	select {
	case <-a.ready:
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	if a.err != nil {
		return nil, "", a.err
	}
	var addrs []netip.Addr
	var blocked sandbox.BlockReason
	for _, addr := range a.addrs {
		if why := refused(addr); why != "" {
			blocked = why
			continue
		}
		addrs = append(addrs, addr)
	}
	n.pin(name, addrs)
	return addrs, blocked, nil
}

func (a *answer) done() bool {
	select {
	case <-a.ready:
		return true
	default:
		return false
	}
}

// ask asks upstream. It does not take the caller's context, because later callers
// wait for the same answer.
func (n *names) ask(name string, a *answer) {
	defer close(a.ready)
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	// The trailing dot excludes the machine's search domains.
	addrs, err := n.resolve(ctx, "ip", name+".")
	a.until = time.Now().Add(answerFor)
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		addrs, err = nil, nil
	}
	if a.err = err; err != nil || len(addrs) == 0 {
		a.until = time.Now().Add(noAnswerFor)
	}
	count := map[bool]int{}
	for _, addr := range addrs {
		addr = addr.Unmap().WithZone("")
		if count[addr.Is4()] < maxAddresses && !slices.Contains(a.addrs, addr) {
			a.addrs = append(a.addrs, addr)
			count[addr.Is4()]++
		}
	}
}

// makeRoom reports whether there is room for one more answer, and drops old
// answers if necessary. The caller holds n.mu.
func (n *names) makeRoom() bool {
	if len(n.answers) < maxAnswers {
		return true
	}
	now := time.Now()
	for name, a := range n.answers {
		if a.done() && now.After(a.until) {
			delete(n.answers, name)
		}
	}
	if len(n.answers) < maxAnswers {
		return true
	}
	for name, a := range n.answers {
		if a.done() {
			delete(n.answers, name)
			return true
		}
	}
	return false
}

// pin records that name resolved to addrs.
func (n *names) pin(name string, addrs []netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for _, a := range addrs {
		p := n.pins[a]
		if p == nil {
			n.dropOldestPin()
			p = &pin{}
			n.pins[a] = p
		}
		p.used = now
		p.names = append(slices.DeleteFunc(p.names, func(s string) bool { return s == name }), name)
		if len(p.names) > maxPinNames {
			p.names = slices.Delete(p.names, 0, len(p.names)-maxPinNames)
		}
	}
}

// dropOldestPin makes room for one more pin. The caller holds n.mu.
func (n *names) dropOldestPin() {
	if len(n.pins) < maxPins {
		return
	}
	var oldest netip.Addr
	var at time.Time
	for a, p := range n.pins {
		if at.IsZero() || p.used.Before(at) {
			oldest, at = a, p.used
		}
	}
	delete(n.pins, oldest)
}

// of returns the names that resolved to an address, the latest last.
func (n *names) of(a netip.Addr) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pins[a]
	if p == nil {
		return nil
	}
	p.used = time.Now()
	return slices.Clone(p.names)
}
