package bench

import (
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Table returns the figures as a table: the names of its columns, and its rows.
func (r Report) Table() (names []string, rows [][]string) {
	most := 0.0
	for _, f := range r.Figures {
		most = max(most, f.P50)
	}
	for _, f := range r.Figures {
		rest := ""
		switch {
		case f.PerSecond > 0:
			rest = fmt.Sprintf("%.1f a second", f.PerSecond)
			if f.Grown > 0 {
				rest += ", this process grew by " + sandbox.FormatBytes(f.Grown)
			}
		case f.Total > 0:
			rest = fmt.Sprintf("all in %.1f s", f.Total/1000)
		}
		if f.Failed > 0 {
			rest += fmt.Sprintf(", %d failed", f.Failed)
		}
		if f.Memory > 0 {
			rows = append(rows, []string{f.Name, fmt.Sprint(f.N), "", "", "", sandbox.FormatBytes(f.Memory), f.Verdict()})
			continue
		}
		rows = append(rows, []string{
			f.Name, fmt.Sprint(f.N), fmt.Sprintf("%.1f", f.P50), fmt.Sprintf("%.1f", f.P99), bar(f.P50, most), strings.TrimPrefix(rest, ", "), f.Verdict(),
		})
	}
	return []string{"WHAT", "N", "P50 MS", "P99 MS", "", "", "GOAL"}, rows
}

// bar draws a bar for value; most has the full length.
func bar(value, most float64) string {
	const width = 24
	if most <= 0 {
		return ""
	}
	eighths := int(value/most*width*8 + 0.5)
	text := strings.Repeat("█", eighths/8)
	if part := eighths % 8; part > 0 {
		text += string([]rune(" ▏▎▍▌▋▊▉")[part])
	} else if eighths == 0 {
		text = "▏"
	}
	return text
}
