package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	r := Report{Figures: []Figure{
		{Name: "single", N: 20, P50: 1, P99: 2.25},
		{Name: "at once", N: 8, Failed: 1, P50: 4, P99: 5, Total: 1500},
		{Name: "without a pause", N: 9, P50: 0.01, P99: 2, PerSecond: 12.34, Grown: 1 << 20},
		{Name: "idle", N: 5, Memory: 39 << 20, Goal: &idleGoal},
	}}
	names, rows := r.Table()
	want := [][]string{
		{"WHAT", "N", "P50 MS", "P99 MS", "", "", "GOAL"},
		{"single", "20", "1.0", "2.2", "██████", "", ""},
		{"at once", "8", "4.0", "5.0", "████████████████████████", "all in 1.5 s, 1 failed", ""},
		{"without a pause", "9", "0.0", "2.0", "▏", "12.3 a second, this process grew by 1 MiB", ""},
		{"idle", "5", "", "", "", "39 MiB", "40 MiB reached"},
	}
	if d := cmp.Diff(want, append([][]string{names}, rows...)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
