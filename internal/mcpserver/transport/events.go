package transport

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An eventStore keeps events of sessions for clients that reconnect. When the
// pool is full, it drops the oldest events of the principal that holds the most.
type eventStore struct {
	pool *fair.Pool

	mu       sync.Mutex
	sessions map[string]*sessionEvents
}

var _ mcp.EventStore = (*eventStore)(nil)

type sessionEvents struct {
	principal sandbox.Principal
	streams   map[string]*streamEvents
	opened    []string // streams of requests, oldest first
}

// maxEventStreams bounds the streams that a session keeps. The SDK opens a stream
// for each request and never closes it. The oldest streams are dropped, and
// clients cannot resume them.
const maxEventStreams = 128

// streamEvents holds the events of a stream. first is the index of the first
// event that it still has.
type streamEvents struct {
	first  int
	events []*event
}

type event struct {
	data []byte
	hold *fair.Hold
}

func newEventStore(pool *fair.Pool) *eventStore {
	return &eventStore{pool: pool, sessions: map[string]*sessionEvents{}}
}

// Open implements [mcp.EventStore].
func (s *eventStore) Open(ctx context.Context, sessionID, streamID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.sessions[sessionID]
	if ses == nil {
		id, _ := auth.FromContext(ctx)
		ses = &sessionEvents{principal: id.Principal, streams: map[string]*streamEvents{}}
		s.sessions[sessionID] = ses
	}
	if ses.streams[streamID] != nil {
		return nil
	}
	ses.streams[streamID] = &streamEvents{}
	if streamID == "" {
		return nil // the session's own stream is never dropped
	}
	if ses.opened = append(ses.opened, streamID); len(ses.opened) > maxEventStreams {
		oldest := ses.streams[ses.opened[0]]
		oldest.dropLocked(len(oldest.events))
		delete(ses.streams, ses.opened[0])
		ses.opened = slices.Delete(ses.opened, 0, 1)
	}
	return nil
}

// findLocked returns a stream, or nil; s.mu is held.
func (s *eventStore) findLocked(sessionID, streamID string) (*sessionEvents, *streamEvents) {
	if ses := s.sessions[sessionID]; ses != nil {
		return ses, ses.streams[streamID]
	}
	return nil, nil
}

// eventCost is the memory of an event in bytes, without its data.
const eventCost = 64

// Append implements [mcp.EventStore]. It ignores events of a stream that was
// dropped.
func (s *eventStore) Append(_ context.Context, sessionID, streamID string, data []byte) error {
	s.mu.Lock()
	ses, stream := s.findLocked(sessionID, streamID)
	s.mu.Unlock()
	if stream == nil {
		return nil
	}
	ev := &event{data: data}
	// Do not hold s.mu here: the pool may call drop for another event.
	hold, err := s.pool.Try(fair.Request{
		Principal: ses.principal, Units: int64(len(data) + eventCost),
		Evict: func(bool) bool { return s.drop(stream, ev) },
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	ev.hold = hold
	stream.events = append(stream.events, ev)
	if _, now := s.findLocked(sessionID, streamID); err != nil || now != stream {
		// The pool is full or the stream is gone. Proceed as if the event had
		// been kept and then dropped.
		stream.dropLocked(len(stream.events))
	}
	return nil
}

// drop removes an event and all earlier events of its stream. It returns false if
// Append has not added the event yet.
func (s *eventStore) drop(stream *streamEvents, ev *event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := slices.Index(stream.events, ev) + 1
	stream.dropLocked(n)
	return n > 0
}

// dropLocked removes the first n events; the store's mu is held.
func (e *streamEvents) dropLocked(n int) {
	for _, ev := range e.events[:n] {
		ev.hold.Release()
	}
	e.events = slices.Delete(e.events, 0, n)
	e.first += n
}

// After implements [mcp.EventStore].
func (s *eventStore) After(_ context.Context, sessionID, streamID string, index int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		events, err := s.after(sessionID, streamID, index)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, ev := range events {
			if !yield(ev.data, nil) {
				return
			}
		}
	}
}

func (s *eventStore) after(sessionID, streamID string, index int) ([]*event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, stream := s.findLocked(sessionID, streamID)
	if stream == nil {
		return nil, fmt.Errorf("there is no stream %q of that session", streamID)
	}
	if start := index + 1 - stream.first; start >= 0 {
		return slices.Clone(stream.events[min(start, len(stream.events)):]), nil
	}
	return nil, fmt.Errorf("event %d of stream %q: %w", index, streamID, mcp.ErrEventsPurged)
}

// SessionClosed implements [mcp.EventStore].
func (s *eventStore) SessionClosed(_ context.Context, sessionID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.sessions[sessionID]; ses != nil {
		for _, stream := range ses.streams {
			stream.dropLocked(len(stream.events))
		}
		delete(s.sessions, sessionID)
	}
	return nil
}
