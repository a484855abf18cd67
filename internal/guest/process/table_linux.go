package process

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// maxLive bounds the live runs in the table, with the interpreters.
	maxLive = 1024
	// maxEnded and maxEndedBytes bound the ended runs whose end no caller
	// took, and their output. The oldest is dropped first.
	maxEnded      = 256
	maxEndedBytes = 32 << 20
)

// A table holds the runs and the interpreters that callers can name.
type table struct {
	held atomic.Int64 // bytes of output that all of them hold

	mu    sync.Mutex
	last  uint64          // number of the latest process
	live  []*run          // in order of their start
	ended []*run          // kept until taken, in order of their end
	tags  map[string]bool // in use or reserved
}

func newTable() *table { return &table{tags: make(map[string]bool)} }

// reserve reserves a place and a tag for a process, and returns its number. An
// empty tag is none.
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

func (t *table) add(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = append(t.live, r)
}

// byPID returns the live processes by pid.
func (t *table) byPID() map[int]*Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := make(map[int]*Process, len(t.live))
	for _, r := range t.live {
		m[r.child.pid] = r.Process
	}
	return m
}

// find returns the run that sel names. A live run takes precedence over
// the latest ended one.
func (t *table) find(sel guestapi.ProcessSelector) (*run, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	named := func(r *run) bool {
		if sel.Tag != "" {
			return r.tag == sel.Tag
		}
		return sel.PID != 0 && uint32(r.child.pid) == sel.PID
	}
	for _, list := range [][]*run{t.live, t.ended} {
		for _, r := range slices.Backward(list) {
			if named(r) {
				return r, nil
			}
		}
	}
	if sel.Tag != "" {
		return nil, rpc.Errorf(guestapi.CodeNotFound, "no process with tag %q", sel.Tag)
	}
	return nil, rpc.Errorf(guestapi.CodeNotFound, "no process %d", sel.PID)
}

func (t *table) list() []*run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Concat(t.live, t.ended)
}

// end moves the run of p to the ended runs. Without Keep the table forgets it at
// once; streams attached to it go on.
func (t *table) end(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.live, func(r *run) bool { return r.Process == p })
	if i < 0 {
		return
	}
	r := t.live[i]
	t.live = slices.Delete(t.live, i, i+1)
	if !r.keep {
		delete(t.tags, r.tag)
		return
	}
	t.ended = append(t.ended, r)
	bytes := 0
	for i, q := range slices.Backward(t.ended) {
		bytes += q.out.holds()
		if len(t.ended)-i > maxEnded || bytes > maxEndedBytes && q != r {
			for _, old := range t.ended[:i+1] {
				delete(t.tags, old.tag)
				old.out.discard()
			}
			t.ended = slices.Delete(t.ended, 0, i+1)
			return
		}
	}
}

// took forgets an ended run after a stream sent its end.
func (t *table) took(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.ended, r); i >= 0 {
		t.ended = slices.Delete(t.ended, i, i+1)
		delete(t.tags, r.tag)
	}
}
