package runlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxOrder bounds how many spans are remembered of the order between the
// streams. After that, a reader gets each stream in order, but not the order
// between them.
const maxOrder = 1 << 14

// A Log stores the output of a run in progress. It has one writer and any
// number of readers. Each reader gets all output from the files, at its own
// pace. The writer waits for the readers before it drops segments that they
// have not read. The guest's back-pressure then makes the program wait too.
// Without readers, the writer never waits.
type Log struct {
	files Files
	most  int64 // bound on the segments that are kept
	head  int64 // segments of each stream that are never dropped
	room  *Room

	mu      sync.Mutex
	changed *sync.Cond // signals changes of the fields below
	streams [Streams]logStream
	order   []span
	muddled bool // order ends before the streams do
	readers []*reader
	closed  bool // no more output will be written
	hurried bool // the writer does not wait for readers
}

type logStream struct {
	Extent
	file *os.File // the open segment; nil if there is none
	cut  bool     // no more of it is kept, for lack of room
}

// A span is a piece of one stream, from the stream's previous end to end.
type span struct {
	stream int
	end    int64
}

// A reader is the position of one reader, in each stream and in the order.
type reader struct {
	at   [Streams]int64
	next int
}

// New returns the log of a run that begins. most bounds the bytes that are
// kept, and the log takes them from room.
func New(files Files, most int64, room *Room) *Log {
	l := &Log{files: files, most: most / segmentSize, room: room}
	l.head = max(1, l.most/8)
	l.changed = sync.NewCond(&l.mu)
	return l
}

// Reopen continues a log that another process began, and takes the room for the
// output that exists already.
func Reopen(files Files, most int64, room *Room) (*Log, error) {
	l := New(files, most, room)
	xs, err := files.Extents()
	if err != nil {
		return nil, err
	}
	for s := range Streams {
		l.streams[s].Extent = xs[s]
		l.muddled = l.muddled || xs[s].Total > 0
		if xs[s].Total%segmentSize == 0 {
			continue
		}
		l.streams[s].file, err = files.root.OpenFile(files.name(s, xs[s].Total/segmentSize), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	for s := range Streams {
		room.Take(xs[s].Kept())
	}
	return l, nil
}

// Append adds p to a stream. It may wait for readers.
func (l *Log) Append(stream int, p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := &l.streams[stream]
	for len(p) > 0 {
		n := min(int64(len(p)), segmentSize-st.Total%segmentSize)
		if st.cut {
			l.loseLocked(stream, int64(len(p)))
			break
		}
		if st.Total%segmentSize == 0 {
			if err := l.beginSegmentLocked(stream); err != nil {
				return fmt.Errorf("write log: %w", err)
			}
		}
		// A stream with a gap has reached its bound: new data takes the room of
		// dropped segments.
		if !l.room.Take(n) && st.GapTo == 0 {
			st.cut = true
			continue
		}
		// Readers may read meanwhile, but only up to total.
		if _, err := st.file.Write(p[:n]); err != nil {
			return fmt.Errorf("write log: %w", err)
		}
		p = p[n:]
		st.Total += n
		l.noteLocked(stream, st.Total)
	}
	if len(l.readers) > 0 {
		l.changed.Broadcast()
	}
	return nil
}

// loseLocked counts n bytes of a stream that are not kept.
func (l *Log) loseLocked(stream int, n int64) {
	x := &l.streams[stream].Extent
	if x.GapTo == 0 {
		x.GapFrom = x.Total
	}
	x.Total += n
	x.GapTo = x.Total
	l.noteLocked(stream, x.Total)
}

// noteLocked records that the stream's bytes up to end came next.
func (l *Log) noteLocked(stream int, end int64) {
	switch last := len(l.order) - 1; {
	case l.muddled:
	case last >= 0 && l.order[last].stream == stream:
		l.order[last].end = end
	case len(l.order) < maxOrder:
		l.order = append(l.order, span{stream, end})
	default:
		l.muddled = true
	}
}

// beginSegmentLocked drops old segments if necessary, and opens the next segment of a
// stream.
func (l *Log) beginSegmentLocked(stream int) error {
	if err := l.makeRoomLocked(); err != nil {
		return err
	}
	st := &l.streams[stream]
	if st.file != nil {
		if err := st.file.Close(); err != nil {
			return err
		}
		st.file = nil
	}
	var err error
	st.file, err = l.files.create(stream, st.Total/segmentSize)
	return err
}

// makeRoomLocked drops segments from the middle until a new one fits.
func (l *Log) makeRoomLocked() error {
	for {
		var held, most int64
		victim := -1
		for s := range Streams {
			x := l.streams[s].Extent
			segments := (x.Kept() + segmentSize - 1) / segmentSize
			held += segments
			// The head is never dropped, nor the segment that is being written.
			if spare := segments - l.head - 1; spare > most {
				victim, most = s, spare
			}
		}
		// held may exceed most by one, because the last segment of each stream
		// is not full. Output that fits the bound is therefore kept whole.
		if held <= l.most || victim < 0 {
			return nil
		}
		x := &l.streams[victim].Extent
		if x.GapTo == 0 {
			x.GapFrom, x.GapTo = l.head*segmentSize, l.head*segmentSize
		}
		drop := x.GapTo
		for !l.hurried && slices.ContainsFunc(l.readers, func(r *reader) bool { return r.at[victim] < drop+segmentSize }) {
			l.changed.Wait()
		}
		if err := l.files.root.Remove(l.files.name(victim, drop/segmentSize)); err != nil {
			return err
		}
		x.GapTo += segmentSize
		l.room.give(segmentSize)
	}
}

// Hurry makes the writer stop waiting for readers, now and later.
func (l *Log) Hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hurried = true
	l.changed.Broadcast()
}

// Close marks the end of the log, and closes the files.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.changed.Broadcast()
	var errs []error
	for s := range Streams {
		if f := l.streams[s].file; f != nil {
			errs = append(errs, f.Close())
			l.streams[s].file = nil
		}
	}
	return errors.Join(errs...)
}

// Extents returns the present extent of each stream.
func (l *Log) Extents() [Streams]Extent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return [Streams]Extent{l.streams[Stdout].Extent, l.streams[Stderr].Extent}
}

// Follow calls f with all output from the first byte on, in the order of
// arrival as far as that is known. It returns when the log is closed and read
// to its end, when ctx ends, or when f fails. A dropped part is replaced by a
// line in its stream.
func (l *Log) Follow(ctx context.Context, f func(stream sandbox.StreamName, data []byte) error) error {
	r := &reader{}
	l.mu.Lock()
	l.readers = append(l.readers, r)
	l.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})
	defer func() {
		stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.readers = slices.DeleteFunc(l.readers, func(other *reader) bool { return other == r })
		l.changed.Broadcast()
	}()
	for {
		stream, x, n, err := l.wait(ctx, r)
		if err != nil || n == 0 {
			return err
		}
		data, next, err := l.files.fetch(stream, x, r.at[stream], n)
		if errors.Is(err, fs.ErrNotExist) && l.Extents()[stream] != x {
			continue // dropped in the meantime
		}
		if err != nil {
			return sandbox.Wrap(err, "read log", l.files.run)
		}
		if err := f(StreamName(stream), data); err != nil {
			return err
		}
		l.advance(r, stream, next)
	}
}

// wait waits for the next output for r. It returns the stream, its extent, and
// the number of bytes that come next in that stream. The number is 0 at the end
// of the log.
func (l *Log) wait(ctx context.Context, r *reader) (stream int, x Extent, n int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for ; r.next < len(l.order); r.next++ {
			next := l.order[r.next]
			if n := next.end - r.at[next.stream]; n > 0 {
				return next.stream, l.streams[next.stream].Extent, n, nil
			}
			if r.next == len(l.order)-1 {
				break // it may still grow
			}
		}
		for s := range Streams {
			if n := l.streams[s].Total - r.at[s]; n > 0 && l.muddled {
				return s, l.streams[s].Extent, n, nil
			}
		}
		if l.closed {
			return 0, Extent{}, 0, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, Extent{}, 0, err
		}
		l.changed.Wait()
	}
}

// advance moves r to offset to of a stream.
func (l *Log) advance(r *reader, stream int, to int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.at[stream] = to
	l.changed.Broadcast()
}
