package transport

import "sync"

// The SDK answers the request of a notification at once, and queues the notification
// until the session handles it. A session that writes to a client that does not read
// handles nothing meanwhile, so that queued notifications must count.

// notes are the notifications of a session that it has not handled, the oldest
// first.
type notes struct {
	mu   sync.Mutex
	list []*note
	over bool // the session has ended
}

// A note is the notifications of one body, from the body's arrival until the session
// has handled them.
type note struct {
	name string // of the ledger
	left int    // notifications that have not been handled
	end  func() // ends the use of the ledger
}

// add counts notifications. A session that has ended ends the note at once.
func (n *notes) add(name string, notifications int, end func()) *note {
	added := &note{name, notifications, end}
	n.mu.Lock()
	over := n.over
	if !over {
		n.list = append(n.list, added)
	}
	n.mu.Unlock()
	if over {
		end()
	}
	return added
}

// drop ends a note that the SDK refused.
func (n *notes) drop(refused *note) {
	n.mu.Lock()
	var dropped []*note
	for i, o := range n.list {
		if o == refused {
			n.list = append(n.list[:i:i], n.list[i+1:]...)
			dropped = append(dropped, refused)
			break
		}
	}
	n.mu.Unlock()
	endNotes(dropped)
}

// handled records that a notification of a note was handled. The session handles
// notifications in the order of arrival, so that older notes have been handled too.
// The SDK may have refused some of them without a handler.
func (n *notes) handled(name string) {
	n.mu.Lock()
	var done []*note
	for i, o := range n.list {
		if o.name != name {
			continue
		}
		older := i
		if o.left--; o.left <= 0 {
			older++
		}
		done = append(done, n.list[:older]...)
		n.list = append([]*note(nil), n.list[older:]...)
		break
	}
	n.mu.Unlock()
	endNotes(done)
}

// end ends all notes of a session that ends.
func (n *notes) end() {
	n.mu.Lock()
	left := n.list
	n.list, n.over = nil, true
	n.mu.Unlock()
	endNotes(left)
}

func endNotes(ended []*note) {
	for _, n := range ended {
		n.end()
	}
}
