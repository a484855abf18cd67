package e2bapi

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// sampleEvery is the time between two samples of a sandbox. A guest has
	// sampleTimeout to answer.
	sampleEvery   = 5 * time.Second
	sampleTimeout = 2 * time.Second
	// maxSamples bounds the samples of one sandbox, to an hour.
	maxSamples = int(time.Hour / sampleEvery)
)

// A sample is what a guest reported at one moment.
type sample struct {
	at time.Time
	guestapi.Metrics
}

// A history keeps what sandboxes used in the last hour. It is in memory, and ends
// with the process. It is safe for concurrent use.
type history struct {
	mu sync.Mutex
	of map[string]*samples // by sandbox ID
}

// samples are the last maxSamples samples of a sandbox, in a ring: next is the
// oldest one once the ring is full.
type samples struct {
	ring []sample
	next int
}

func newHistory() *history { return &history{of: map[string]*samples{}} }

// add adds a sample, which is the newest.
func (h *history) add(id string, s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.of[id]
	if of == nil {
		of = &samples{}
		h.of[id] = of
	}
	if len(of.ring) < maxSamples {
		of.ring = append(of.ring, s)
		return
	}
	of.ring[of.next] = s
	of.next = (of.next + 1) % maxSamples
}

// list returns the samples of a sandbox, oldest first.
func (h *history) list(id string) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.of[id]
	if of == nil {
		return nil
	}
	return slices.Concat(of.ring[of.next:], of.ring[:of.next])
}

// keep forgets all sandboxes except those.
func (h *history) keep(ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := make(map[string]*samples, len(ids))
	for _, id := range ids {
		if of := h.of[id]; of != nil {
			kept[id] = of
		}
	}
	h.of = kept
}

// Run samples what sandboxes use, until ctx ends or the server shuts down. It does
// not wake a sandbox, and does not extend its life.
func (s *Server) Run(ctx context.Context) {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		s.sampleAll(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		case <-s.closing.Done():
			return
		}
	}
}

// sampleAll samples every sandbox that runs in this process. It asks all guests at
// the same time, so that a hostile one delays no other.
func (s *Server) sampleAll(ctx context.Context) {
	ids, err := s.opts.Engine.Live(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Log.Error("sample sandboxes", "error", err)
		}
		return
	}
	s.history.keep(ids)
	s.journal.keep(ids)
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for _, id := range s.opts.Engine.Observable() {
		asked.Go(func() {
			m, err := readMetrics(ctx, func(req *http.Request) (*http.Response, error) { return s.opts.Engine.Observe(id, req) })
			if err != nil {
				return // it is paused, ends, or does not answer: there is no sample of this moment
			}
			s.history.add(id, sample{s.opts.Now(), *m})
		})
	}
	asked.Wait()
}
