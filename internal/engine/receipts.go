package engine

import (
	"slices"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// sharedReceipts lets sandboxes with equal receipts share one, to save memory. A receipt
// never changes.
type sharedReceipts struct {
	mu     sync.Mutex
	recent [16]sandbox.Receipt // one for each combination of limits and features, as a rule
	next   int
}

// of returns a receipt that is equal to r.
func (s *sharedReceipts) of(r sandbox.Receipt) sandbox.Receipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.recent {
		if slices.Equal(known, r) {
			return known
		}
	}
	s.recent[s.next] = r
	s.next = (s.next + 1) % len(s.recent)
	return r
}
