package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Goal is the target of a figure on a machine with two cores. Zero fields are
// no target.
type Goal struct {
	P50       float64 `json:"p50_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
	Total     float64 `json:"total_ms,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`
	Memory    int64   `json:"memory_bytes,omitempty"`
	// Times is the required improvement over docker run in the same measurement,
	// as a factor.
	Times float64 `json:"times,omitempty"`
}

// Names of figures that have a goal or are used for comparison.
const (
	nameDocker     = "docker run"
	nameDockerPlot = "docker run, a plot"
	nameFresh      = "glovebox over HTTP, a fresh sandbox of the pool"
	namePlot       = "glovebox over HTTP, a plot in a fresh sandbox of the pool"
	nameLive       = "glovebox over HTTP, 1+1 in a live context"
	nameRested     = "glovebox over HTTP, 1+1 in a context that rested"
	nameSustained  = "8 callers without a pause, a fresh sandbox each"
	prefixDocker   = "docker run: "
)

func nameBurst(n int) string { return fmt.Sprintf("%d callers at once, a fresh sandbox each", n) }

// goals are the goals by name of figure.
var goals = map[string]Goal{
	nameFresh:      {P50: 10, P99: 50, Times: 20},
	namePlot:       {P50: 120, P99: 600},
	nameLive:       {P50: 3, P99: 15},
	nameBurst(100): {Total: 8000},
	nameSustained:  {PerSecond: 15, Times: 2.5},
}

// idleGoal is the goal for the memory of an idle sandbox.
var idleGoal = Goal{Memory: 40 << 20}

// judge sets the goals of figures, and the comparison with Docker.
func (r *Report) judge() {
	of := map[string]Figure{}
	for _, f := range r.Figures {
		of[f.Name] = f
	}
	for i := range r.Figures {
		f := &r.Figures[i]
		if goal, ok := goals[f.Name]; ok {
			f.Goal = &goal
		}
		theirs := of[map[string]string{nameFresh: nameDocker, namePlot: nameDockerPlot}[f.Name]]
		if f.Total > 0 || f.PerSecond > 0 {
			theirs = of[prefixDocker+f.Name]
		}
		switch {
		case theirs.PerSecond > 0:
			f.Times = f.PerSecond / theirs.PerSecond
		case theirs.Total > 0 && f.Total > 0:
			f.Times = theirs.Total / f.Total
		case theirs.P50 > 0 && f.P50 > 0:
			f.Times = theirs.P50 / f.P50
		}
	}
}

// Verdict returns the goal and whether the figure reaches it. Without a goal, it
// returns the comparison with docker run, or "".
func (f Figure) Verdict() string {
	var parts []string
	part := func(reached bool, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if reached {
			text += " reached"
		} else {
			text += " missed"
		}
		parts = append(parts, text)
	}
	g := f.Goal
	if g == nil {
		if f.Times > 0 {
			return fmt.Sprintf("%.1f times docker run", f.Times)
		}
		return ""
	}
	if g.P50 > 0 {
		part(f.P50 <= g.P50 && f.P99 <= g.P99, "%g / %g ms", g.P50, g.P99)
	}
	if g.Total > 0 {
		part(f.Total <= g.Total && f.Failed == 0, "all in %g s", g.Total/1000)
	}
	if g.PerSecond > 0 {
		part(f.PerSecond >= g.PerSecond, "%g a second", g.PerSecond)
	}
	if g.Memory > 0 {
		part(f.Memory <= g.Memory, "%s", sandbox.FormatBytes(g.Memory))
	}
	switch {
	case g.Times > 0 && f.Times > 0:
		part(f.Times >= g.Times, "%g times docker run: %.1f,", g.Times, f.Times)
	case f.Times > 0:
		parts = append(parts, fmt.Sprintf("%.1f times docker run", f.Times))
	}
	return strings.Join(parts, "; ")
}

// figure returns the figure of measured times, which it sorts.
func figure(name string, took []time.Duration) Figure {
	f := Figure{Name: name, N: len(took)}
	if len(took) > 0 {
		slices.Sort(took)
		at := func(q float64) float64 { return millis(took[int(q*float64(len(took)-1)+0.5)]) }
		f.P50, f.P99 = at(0.50), at(0.99)
	}
	return f
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
