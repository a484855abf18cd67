package mcpserver

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

// An eventStore keeps events of sessions for clients that come back. When there
// is no room for one more, the oldest events go of the principal that has most.
type eventStore struct {
	pool *fair.Pool

	mu       sync.Mutex
	sessions map[string]*sessionEvents
}

var _ mcp.EventStore = (*eventStore)(nil)

type sessionEvents struct {
	principal sandbox.Principal
	streams   map[string]*streamEvents
}

// streamEvents are the events of a stream from the number first on.
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
	s.streamLocked(ctx, sessionID, streamID)
	return nil
}

// streamLocked returns a stream, which it makes; s.mu is held.
func (s *eventStore) streamLocked(ctx context.Context, sessionID, streamID string) (*sessionEvents, *streamEvents) {
	ses := s.sessions[sessionID]
	if ses == nil {
		id, _ := auth.FromContext(ctx)
		ses = &sessionEvents{id.Principal, map[string]*streamEvents{}}
		s.sessions[sessionID] = ses
	}
	if ses.streams[streamID] == nil {
		ses.streams[streamID] = &streamEvents{}
	}
	return ses, ses.streams[streamID]
}

// eventCost is the memory of an event beside its data.
const eventCost = 64

// Append implements [mcp.EventStore].
func (s *eventStore) Append(ctx context.Context, sessionID, streamID string, data []byte) error {
	s.mu.Lock()
	ses, stream := s.streamLocked(ctx, sessionID, streamID)
	s.mu.Unlock()
	ev := &event{data: data}
	// The store asks for the room without its lock: others' events may go.
	hold, err := s.pool.Try(fair.Request{
		Principal: ses.principal, Units: int64(len(data) + eventCost),
		Evict: func(bool) bool { return s.drop(stream, ev) },
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	ev.hold = hold
	stream.events = append(stream.events, ev)
	if err != nil || s.sessions[sessionID] != ses {
		// It is as if the event had been kept and gone at once.
		stream.dropLocked(len(stream.events))
	}
	return nil
}

// drop removes an event, with those before it in its stream. It reports false
// for an event that is not in the stream yet.
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
	ses := s.sessions[sessionID]
	if ses == nil || ses.streams[streamID] == nil {
		return nil, fmt.Errorf("there is no stream %q of that session", streamID)
	}
	stream := ses.streams[streamID]
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
