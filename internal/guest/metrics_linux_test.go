package guest

import (
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	start := time.Unix(1000, 0)
	m := meter{at: start}
	for _, step := range []struct {
		after, used time.Duration
		want        float64
	}{
		{10 * time.Second, 5 * time.Second, 0.5},
		{10 * time.Second, 5 * time.Second, 0}, // at the same moment
		{12 * time.Second, 9 * time.Second, 2},
		{13 * time.Second, 8 * time.Second, 0}, // a process ended unseen
	} {
		if got := m.read(start.Add(step.after), step.used); got != step.want {
			t.Errorf("after %v, %v used: %v processors, want %v", step.after, step.used, got, step.want)
		}
	}
}
