package bench

import (
	"strings"
	"testing"
)

// TestJudge has figures that reach what they are to reach, and figures that do
// not.
func TestJudge(t *testing.T) {
	r := Report{Figures: []Figure{
		{Name: nameDocker, P50: 210, P99: 300},
		{Name: nameFresh, P50: 10, P99: 50},
		{Name: namePlot, P50: 110, P99: 601},
		{Name: nameLive, P50: 3.5, P99: 4},
		{Name: nameBurst(100), P50: 4000, P99: 7000, Total: 8001},
		{Name: prefixDocker + nameBurst(100), P50: 9000, P99: 17000, Total: 16002},
		{Name: nameBurst(8), P50: 400, P99: 500, Total: 500},
		{Name: prefixDocker + nameBurst(8), P50: 700, P99: 900, Total: 1000},
		{Name: nameSustained, P50: 100, P99: 200, PerSecond: 20},
		{Name: prefixDocker + nameSustained, P50: 900, P99: 1500, PerSecond: 10},
		{Name: "memory", Memory: 39 << 20, Goal: &idleGoal},
		{Name: "glovebox, 1+1 in a live context", P50: 1, P99: 2},
	}}
	r.judge()
	want := map[string]string{
		nameDocker:     "",
		nameFresh:      "10 / 50 ms reached; 20 times docker run: 21.0, reached",
		namePlot:       "120 / 600 ms missed",
		nameLive:       "3 / 15 ms missed",
		nameBurst(100): "all in 8 s missed; 2.0 times docker run",
		nameBurst(8):   "2.0 times docker run",
		nameSustained:  "15 a second reached; 2.5 times docker run: 2.0, missed",
		"memory":       "40 MiB reached",
	}
	for _, f := range r.Figures {
		if got := f.Verdict(); got != want[f.Name] {
			t.Errorf("%s: %q, want %q", f.Name, got, want[f.Name])
		}
	}
}

// TestGoalNeedsAll has callers all of whom must have got their result.
func TestGoalNeedsAll(t *testing.T) {
	r := Report{Figures: []Figure{{Name: nameBurst(100), N: 100, Failed: 1, P50: 1, P99: 2, Total: 5000}}}
	r.judge()
	if got := r.Figures[0].Verdict(); got != "all in 8 s missed" {
		t.Errorf("%q", got)
	}
	var b strings.Builder
	r.Figures[0].Goal.P50 = 5
	if err := SVG(&b, r); err != nil || !strings.Contains(b.String(), "goal") {
		t.Errorf("%v\n%s", err, &b)
	}
}
