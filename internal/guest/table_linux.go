package guest

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// maxLive bounds the live processes in the table.
	maxLive = 1024
	// maxEnded and maxEndedBytes bound the ended processes whose end no caller
	// took, and their output. The oldest is dropped first.
	maxEnded      = 256
	maxEndedBytes = 32 << 20
)

// A table holds the processes that callers can name.
type table struct {
	held atomic.Int64 // bytes of output that all of them hold

	mu    sync.Mutex
	last  uint64          // number of the latest process
	live  []*process      // in order of their start
	ended []*process      // kept until taken, in order of their end
	tags  map[string]bool // in use or reserved
}

func newTable() *table { return &table{tags: make(map[string]bool)} }

// reserve reserves a place and a tag for a process, and returns its number.
func (t *table) reserve(tag string) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.live) >= maxLive {
		return 0, rpc.Errorf(guestapi.CodeResourceExhausted, "%d processes run already", len(t.live))
	}
	if tag != "" {
		if t.tags[tag] {
			return 0, rpc.Errorf(guestapi.CodeAlreadyExists, "tag %q is in use", tag)
		}
		t.tags[tag] = true
	}
	t.last++
	return t.last, nil
}

// release undoes reserve.
func (t *table) release(tag string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.tags, tag)
}

func (t *table) add(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = append(t.live, p)
}

// byPID returns the live processes by pid.
func (t *table) byPID() map[int]*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := make(map[int]*process, len(t.live))
	for _, p := range t.live {
		m[p.child.pid] = p
	}
	return m
}

// find returns the process that sel names. A live process takes precedence over
// the latest ended one.
func (t *table) find(sel guestapi.ProcessSelector) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	named := func(p *process) bool {
		if sel.Tag != "" {
			return p.tag == sel.Tag
		}
		return sel.PID != 0 && uint32(p.child.pid) == sel.PID
	}
	for _, list := range [][]*process{t.live, t.ended} {
		for _, p := range slices.Backward(list) {
			if named(p) {
				return p, nil
			}
		}
	}
	if sel.Tag != "" {
		return nil, rpc.Errorf(guestapi.CodeNotFound, "no process with tag %q", sel.Tag)
	}
	return nil, rpc.Errorf(guestapi.CodeNotFound, "no process %d", sel.PID)
}

func (t *table) list() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Concat(t.live, t.ended)
}

// end moves p to the ended processes. Without Keep the table forgets p at once;
// streams attached to it go on.
func (t *table) end(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = slices.DeleteFunc(t.live, func(q *process) bool { return q == p })
	if !p.keep {
		delete(t.tags, p.tag)
		return
	}
	t.ended = append(t.ended, p)
	bytes := 0
	for i, q := range slices.Backward(t.ended) {
		bytes += q.out.holds()
		if len(t.ended)-i > maxEnded || bytes > maxEndedBytes && q != p {
			for _, old := range t.ended[:i+1] {
				delete(t.tags, old.tag)
				old.out.discard()
			}
			t.ended = slices.Delete(t.ended, 0, i+1)
			return
		}
	}
}

// took forgets an ended process after a stream sent its end.
func (t *table) took(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.ended, p); i >= 0 {
		t.ended = slices.Delete(t.ended, i, i+1)
		delete(t.tags, p.tag)
	}
}
