package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Hibernated counts a sandbox that was to be saved on disk. stood is how long its
// programs stood still, if err is nil.
func (s *Set) Hibernated(stood time.Duration, err error) {
	if s != nil {
		observe(s.saves, s.stoodTime, stood, err)
	}
}

// Woken counts a sandbox that was to be woken from disk, which took that long.
func (s *Set) Woken(took time.Duration, err error) {
	if s != nil {
		observe(s.wakes, s.wakeTime, took, err)
	}
}

// Compressed counts a saved state that was to be compressed.
func (s *Set) Compressed(err error) {
	if s != nil {
		s.packs.WithLabelValues(result(err)).Inc()
	}
}

// Cold says how many saved states wait for their compression.
func (s *Set) Cold(count int) {
	if s != nil {
		s.cold.Set(float64(count))
	}
}

func result(err error) string {
	if err != nil {
		return string(sandbox.KindOf(err))
	}
	return "ok"
}

func observe(results *prometheus.CounterVec, times prometheus.Histogram, took time.Duration, err error) {
	results.WithLabelValues(result(err)).Inc()
	if err == nil {
		times.Observe(took.Seconds())
	}
}

// Saved are the saved states of the state directory.
type Saved struct {
	Count int
	Bytes int64
	// Age is that of the oldest.
	Age time.Duration
}
