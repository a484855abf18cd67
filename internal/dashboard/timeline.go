package dashboard

import (
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The measures of a timeline.
const (
	timelineWidth = 1000
	timelineRuns  = 200
	laneHeight    = 14
	maxLanes      = 8
	leastWidth    = 4 // of a run, so that it is visible
)

// A timeline shows when runs went on, in lanes of a picture.
type timeline struct {
	From, To time.Time
	Height   int
	Bars     []timelineBar
}

// A timelineBar is a run.
type timelineBar struct {
	Run, X, Width, Tone, Text string
	Y                         int
}

// newTimeline returns the runs from the beginning of the first to the time to. The
// latest run is first in the list.
func newTimeline(runs []runRow, to time.Time) timeline {
	if len(runs) > timelineRuns {
		runs = runs[:timelineRuns]
	}
	if len(runs) == 0 {
		return timeline{}
	}
	t := timeline{From: runs[0].Started, To: to}
	for _, r := range runs {
		if r.Started.Before(t.From) {
			t.From = r.Started
		}
	}
	span := max(t.To.Sub(t.From), time.Second)
	// The picture moves in steps, so that it does not change at every look.
	span = span.Truncate(max(time.Second, (span/100).Round(time.Second))) + max(time.Second, (span/100).Round(time.Second))
	t.To = t.From.Add(span)
	at := func(when time.Time) float64 {
		return min(max(float64(when.Sub(t.From))/float64(span), 0), 1) * timelineWidth
	}
	var ends []float64 // of the last run in each lane
	for i := len(runs) - 1; i >= 0; i-- {
		r := runs[i]
		kind, end := "busy", at(t.To)
		if r.Status == sandbox.RunFinished {
			kind, end = tone(r.Verdict.Code), at(r.Ended)
		}
		x := min(at(r.Started), timelineWidth-leastWidth)
		width := max(end-x, leastWidth)
		lane := 0
		for lane < len(ends) && ends[lane] > x {
			lane++
		}
		if lane == maxLanes {
			lane = maxLanes - 1 // bars overlap there
		}
		if lane == len(ends) {
			ends = append(ends, 0)
		}
		ends[lane] = x + width + 1
		text := r.Line
		if r.Service != nil {
			text = "service " + r.Service.Name
		}
		if took := r.Took(); took != "" {
			text = fmt.Sprintf("%s, %s", text, took)
		}
		t.Bars = append(t.Bars, timelineBar{runPath(r.ID), number(x), number(width), kind, text, lane * laneHeight})
	}
	t.Height = len(ends) * laneHeight
	return t
}
