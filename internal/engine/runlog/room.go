package runlog

import (
	"sync"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Two pools of bytes share the space for logs between principals. Each has half
// of the space. The first pool has the logs of runs in progress, and
// evicts none. The second has the logs of finished runs. It evicts the least
// recently used log of the principal that holds most. Bytes are held before
// they are written.

const (
	// firstLogChunk is how many bytes a log takes from the pool with its first
	// byte. Later it takes as much as it has, but at most a segment more. A
	// part of the pool is reserved for first chunks.
	firstLogChunk = 64 << 10
	// recordSize is the size, in bytes, of a finished run besides its log: its
	// record, and the file system's overhead.
	recordSize = 16 << 10
)

// Pools returns the pool of logs of runs in progress, and the pool of logs of
// finished runs. all is the space of both, and one bounds a single log.
func Pools(all, one int64) (running, kept *fair.Pool) {
	half := max(all/2, one+recordSize)
	running = fair.New(fair.Options{
		Name: "bytes of logs of runs that go on", Total: half, Small: firstLogChunk, Reserve: half / 8, Format: sandbox.FormatBytes,
	})
	return running, fair.New(fair.Options{Name: "bytes of logs", Total: half, Format: sandbox.FormatBytes})
}

// A Room is the space that the log and the results of a run in progress take. A
// nil Room has no bound.
type Room struct {
	pool *fair.Pool
	who  sandbox.Principal

	mu            sync.Mutex
	hold          *fair.Hold // nil before the first byte
	granted, used int64
	full          bool // a request for more was refused; there are no further requests
}

// NewRoom returns a room without a byte, for a run of a principal.
func NewRoom(pool *fair.Pool, who sandbox.Principal) *Room { return &Room{pool: pool, who: who} }

// Take takes n more bytes. It reports false if the pool has no more for the
// principal, and always after that.
func (r *Room) Take(n int64) bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		return false
	}
	if need := r.used + n; need > r.granted {
		want := max(need, firstLogChunk, min(2*r.granted, r.granted+segmentSize))
		var err error
		if r.hold == nil {
			r.hold, err = r.pool.Try(fair.Request{Principal: r.who, Units: want})
		} else {
			err = r.hold.Resize(want)
		}
		if err != nil {
			r.full = true
			return false
		}
		r.granted = want
	}
	r.used += n
	return true
}

// give returns n bytes, for the same log to take again.
func (r *Room) give(n int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = max(0, r.used-n)
}

// Release returns all bytes to the pool.
func (r *Room) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = true
	r.hold.Release()
}
