package trace

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// tableWidth is the width of the chart, in characters.
const tableWidth = 32

// Table prints spans as a waterfall chart: start, duration and parent of each. It
// returns the errors of w.
func Table(w io.Writer, spans []Span) error {
	if len(spans) == 0 {
		return nil
	}
	known := map[string]bool{}
	first, last := spans[0].Start, spans[0].End
	for _, s := range spans {
		known[s.ID] = true
		if s.Start.Before(first) {
			first = s.Start
		}
		if s.End.After(last) {
			last = s.End
		}
	}
	children := map[string][]Span{}
	for _, s := range spans {
		if !known[s.Parent] {
			s.Parent = ""
		}
		children[s.Parent] = append(children[s.Parent], s)
	}
	whole := max(last.Sub(first), time.Nanosecond)
	if _, err := fmt.Fprintf(w, "%10s %10s  %-*s  %s\n", "AT MS", "TOOK MS", tableWidth, "", "WHAT"); err != nil {
		return err
	}
	var show func(parent string, depth int) error
	show = func(parent string, depth int) error {
		list := children[parent]
		slices.SortStableFunc(list, func(a, b Span) int { return a.Start.Compare(b.Start) })
		for _, s := range list {
			at, took := s.Start.Sub(first), s.End.Sub(s.Start)
			from := int(int64(at) * tableWidth / int64(whole))
			width := max(1, int((int64(took)*tableWidth+int64(whole)/2)/int64(whole)))
			from = min(from, tableWidth-1)
			width = min(width, tableWidth-from)
			bar := strings.Repeat(" ", from) + strings.Repeat("█", width) + strings.Repeat(" ", tableWidth-from-width)
			name := strings.Repeat("  ", depth) + s.Name
			if s.Error != "" {
				name += " (failed)"
			}
			if _, err := fmt.Fprintf(w, "%10.1f %10.1f  %s  %s\n", millis(at), millis(took), bar, name); err != nil {
				return err
			}
			if err := show(s.ID, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return show("", 0)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
