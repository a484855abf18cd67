package process

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// chunkSize is the largest piece of output that is read and sent at once.
	chunkSize = 128 << 10
	// ownChunk is the size from which a read keeps its buffer instead of a copy.
	ownChunk = chunkSize / 2
	// maxHeld bounds the output of a process that its streams have not sent yet.
	maxHeld = 1 << 20
	// maxHeldTogether bounds the output that all processes hold. Beyond it each
	// may hold only minHeld, so that no process is blocked by the others.
	maxHeldTogether = 64 << 20
	minHeld         = 64 << 10
	// maxSent bounds the output kept after sending, for a caller that dies
	// before it has saved it. It is more than sockets and HTTP/2 have in flight.
	maxSent = 512 << 10
	// maxTail bounds the end of the error output that is searched for the reason
	// of a failure.
	maxTail = 4 << 10
)

var chunkPool = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// A chunk is a piece of output of one stream, or the end of the process.
type chunk struct {
	stream guestapi.Stream
	from   int64 // offset in the stream, in bytes
	data   []byte
	pooled *[chunkSize]byte   // the buffer of data, if it returns to the pool
	sealed bool               // a stream has it: nothing may be appended
	end    *guestapi.EndEvent // set in the last chunk only
}

// An output is a bounded queue between a process and the streams that carry its
// output. Every attached stream gets every chunk, and the slowest stream blocks
// the process. A chunk is taken when a stream has sent it. With keep, the latest
// sent chunks stay for a caller that died before it saved them.
type output struct {
	keep  bool          // hold output while no stream is attached
	total *atomic.Int64 // bytes that all outputs hold

	mu      sync.Mutex
	space   sync.Cond // signalled when held shrinks, or no stream is attached
	queue   []*chunk  // chunks that are not taken, or not by every stream
	first   uint64    // number of queue[0]
	taken   uint64    // number of the first chunk that no stream took
	held    int       // bytes in queue
	sent    []*chunk  // the latest chunks that left the queue, if keep is set
	resend  int       // bytes in sent
	lengths [2]int64  // bytes of standard output or terminal, and of error output
	streams map[*attachment]struct{}
	tail    []byte // the end of the error output
}

func newOutput(keep bool, total *atomic.Int64) *output {
	o := &output{keep: keep, total: total, streams: make(map[*attachment]struct{})}
	o.space.L = &o.mu
	return o
}

// add appends n bytes of pooled, and waits until there is room. It takes pooled
// over.
func (o *output) add(s guestapi.Stream, pooled *[chunkSize]byte, n int) {
	data := pooled[:n]
	o.mu.Lock()
	defer o.mu.Unlock()
	if s != guestapi.Stdout {
		o.noteLocked(data)
	}
	for o.wantedLocked() && o.held > 0 && o.held+n > o.limit() {
		o.space.Wait()
	}
	if !o.wantedLocked() {
		chunkPool.Put(pooled)
		return
	}
	o.held += n
	o.total.Add(int64(n))
	from := o.lengths[side(s)]
	o.lengths[side(s)] += int64(n)
	if n >= ownChunk {
		o.queue = append(o.queue, &chunk{stream: s, from: from, data: data, pooled: pooled})
	} else {
		if last := o.lastLocked(); last != nil && !last.sealed && last.stream == s && last.pooled == nil && len(last.data)+n <= ownChunk {
			last.data = append(last.data, data...)
		} else {
			o.queue = append(o.queue, &chunk{stream: s, from: from, data: append([]byte(nil), data...)})
		}
		chunkPool.Put(pooled)
	}
	o.wakeLocked()
}

// side returns the index of a stream in [output.lengths].
func side(s guestapi.Stream) int {
	if s == guestapi.Stderr {
		return 1
	}
	return 0
}

// wantedLocked reports whether a stream takes output, now or later.
func (o *output) wantedLocked() bool { return o.keep || len(o.streams) > 0 }

// limit returns how many bytes may be held now.
func (o *output) limit() int {
	if o.total.Load() > maxHeldTogether {
		return minHeld
	}
	return maxHeld
}

// lastLocked returns the latest chunk in the queue, or nil.
func (o *output) lastLocked() *chunk {
	if len(o.queue) == 0 {
		return nil
	}
	return o.queue[len(o.queue)-1]
}

// wakeLocked wakes the attached streams.
func (o *output) wakeLocked() {
	for a := range o.streams {
		select {
		case a.ready <- struct{}{}:
		default:
		}
	}
}

// finish appends the end. Nothing is added after it.
func (o *output) finish(end *guestapi.EndEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wantedLocked() {
		o.queue = append(o.queue, &chunk{end: end})
	}
	o.wakeLocked()
}

// note keeps the end of the error output.
func (o *output) note(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.noteLocked(data)
}

func (o *output) noteLocked(data []byte) {
	o.tail = append(o.tail, data[max(0, len(data)-maxTail):]...)
	o.tail = o.tail[max(0, len(o.tail)-maxTail):]
}

// text returns the end of the error output.
func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.tail)
}

// holds returns the number of held bytes.
func (o *output) holds() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}

// discard drops the held output for good.
func (o *output) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keep = false
	o.trimLocked()
}

// An attachment is the position of a stream in an output.
type attachment struct {
	o     *output
	ready chan struct{} // has a value when there may be something new
	next  uint64        // number of the next chunk; guarded by o.mu
	first []*chunk      // earlier chunks to send again; guarded by o.mu
}

// attach adds a stream, which begins with the first chunk that no stream took.
func (o *output) attach() *attachment {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := &attachment{o: o, ready: make(chan struct{}, 1), next: max(o.first, o.taken)}
	o.streams[a] = struct{}{}
	a.ready <- struct{}{}
	return a
}

// again makes the stream begin with the sent output that its caller does not
// have.
func (a *attachment) again(have guestapi.OutputCounts) {
	o := a.o
	o.mu.Lock()
	defer o.mu.Unlock()
	had := [2]int64{have.Stdout, have.Stderr}
	for _, c := range o.sent {
		skip := max(0, had[side(c.stream)]-c.from)
		if skip < int64(len(c.data)) {
			// A copy: the chunk may leave o.sent, and its buffer be reused.
			a.first = append(a.first, &chunk{stream: c.stream, from: c.from + skip, data: bytes.Clone(c.data[skip:])})
		}
	}
}

// detach ends the attachment. The chunks that it did not take go to the other
// streams, are held, or are dropped.
func (a *attachment) detach() {
	o := a.o
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.streams, a)
	o.trimLocked()
}

// wait returns the next chunk, or nil when silent has a value before.
func (a *attachment) wait(ctx context.Context, silent <-chan time.Time) (*chunk, error) {
	for {
		if c := a.peek(); c != nil {
			return c, nil
		}
		select {
		case <-a.ready:
		case <-silent:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (a *attachment) peek() *chunk {
	o := a.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(a.first) > 0 {
		return a.first[0]
	}
	i := a.next - o.first
	if i >= uint64(len(o.queue)) {
		return nil
	}
	c := o.queue[i]
	c.sealed = true
	return c
}

// took marks the chunk that wait returned as sent.
func (a *attachment) took() {
	o := a.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(a.first) > 0 {
		a.first = a.first[1:]
		return
	}
	a.next++
	o.taken = max(o.taken, a.next)
	o.trimLocked()
}

// trimLocked drops the chunks that are no longer needed.
func (o *output) trimLocked() {
	need := o.taken
	for a := range o.streams {
		need = min(need, a.next)
	}
	if !o.wantedLocked() {
		need = o.first + uint64(len(o.queue))
	}
	ended := !o.keep
	for o.first < need && len(o.queue) > 0 {
		c := o.queue[0]
		o.queue[0] = nil
		o.queue = o.queue[1:]
		o.first++
		o.held -= len(c.data)
		o.resend += len(c.data)
		o.sent = append(o.sent, c)
		ended = ended || c.end != nil // the process is forgotten at its end
	}
	for len(o.sent) > 0 && (ended || o.resend > maxSent || o.total.Load() > maxHeldTogether) {
		c := o.sent[0]
		o.sent[0] = nil
		o.sent = o.sent[1:]
		o.resend -= len(c.data)
		o.total.Add(-int64(len(c.data)))
		if c.pooled != nil {
			chunkPool.Put(c.pooled)
		}
	}
	o.space.Broadcast()
}
