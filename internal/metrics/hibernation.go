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

func observe(results *prometheus.CounterVec, times prometheus.Histogram, took time.Duration, err error) {
	if err != nil {
		results.WithLabelValues(string(sandbox.KindOf(err))).Inc()
		return
	}
	results.WithLabelValues("ok").Inc()
	times.Observe(took.Seconds())
}

// Saved are the saved states of the state directory.
type Saved struct {
	Count int
	Bytes int64
	// Age is that of the oldest.
	Age time.Duration
}
