package mcpserver

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The SDK answers the request of a notification at once, and queues the notification
// until the session handles it. A session that writes to a client that does not read
// handles nothing meanwhile, so that queued notifications must count.

// A note is the notifications of one body, from the body's arrival until the session
// has handled them.
type note struct {
	name string // of the ledger
	left int    // notifications that have not been handled
	end  func() // ends the use of the ledger
}

// addNote counts notifications. A session that has ended ends the note at once.
func (s *session) addNote(name string, notifications int, end func()) *note {
	n := &note{name, notifications, end}
	s.of.mu.Lock()
	over := s.over
	if !over {
		s.notes = append(s.notes, n)
	}
	s.of.mu.Unlock()
	if over {
		end()
	}
	return n
}

// dropNote ends a note that the SDK refused.
func (s *session) dropNote(n *note) {
	s.of.mu.Lock()
	var dropped []*note
	for i, o := range s.notes {
		if o == n {
			s.notes = append(s.notes[:i:i], s.notes[i+1:]...)
			dropped = append(dropped, n)
			break
		}
	}
	s.of.mu.Unlock()
	endNotes(dropped)
}

// noteHandled records that a notification of a note was handled. The session handles
// notifications in the order of arrival, so that older notes have been handled too.
// The SDK may have refused some of them without a handler.
func (s *session) noteHandled(name string) {
	s.of.mu.Lock()
	var handled []*note
	for i, n := range s.notes {
		if n.name != name {
			continue
		}
		older := i
		if n.left--; n.left <= 0 {
			older++
		}
		handled = append(handled, s.notes[:older]...)
		s.notes = append([]*note(nil), s.notes[older:]...)
		break
	}
	s.of.mu.Unlock()
	endNotes(handled)
}

// endNotesLocked returns all notes of a session that ends; s.of.mu is held.
func (s *session) endNotesLocked() []*note {
	notes := s.notes
	s.notes, s.over = nil, true
	return notes
}

func endNotes(notes []*note) {
	for _, n := range notes {
		n.end()
	}
}

// countNotes reports each notification that was handled to its session.
func countNotes(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if extra := req.GetExtra(); extra != nil && strings.HasPrefix(method, "notifications/") {
			if ses := sessionOf(ctx); ses != nil {
				ses.noteHandled(extra.Header.Get(requestHeader))
			}
		}
		return res, err
	}
}
