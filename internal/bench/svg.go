package bench

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Sizes of the picture, in its own units.
const (
	svgWidth  = 900
	svgLeft   = 400 // where bars begin
	svgRight  = 130 // room for the figures beside the bars
	svgRow    = 26
	svgHeader = 58
)

// SVG writes the report as a picture. Each figure has a bar up to its median, a
// line up to its 99th percentile, and a mark at its goal. The scale is
// logarithmic.
func SVG(w io.Writer, r Report) error {
	var rows []Figure
	least, most := math.Inf(1), 0.0
	for _, f := range r.Figures {
		if f.P50 > 0 {
			rows = append(rows, f)
			least, most = min(least, f.P50), max(most, f.P99)
			if f.Goal != nil && f.Goal.P50 > 0 {
				least = min(least, f.Goal.P50)
			}
		}
	}
	if len(rows) == 0 {
		least, most = 1, 10
	}
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	if to <= from {
		to = from + 1
	}
	x := func(ms float64) float64 {
		return svgLeft + (math.Log10(max(ms, math.Pow(10, from)))-from)/(to-from)*(svgWidth-svgLeft-svgRight)
	}
	height := svgHeader + svgRow*len(rows) + 24
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", svgWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", svgWidth, height)
	fmt.Fprintf(&b, `<text x="12" y="24" font-size="16" fill="#111">Time to a complete result: median, and 99 of 100</text>`+"\n")
	fmt.Fprintf(&b, `<text x="12" y="44" fill="#555">%s</text>`+"\n", html.EscapeString(r.Machine.String()))
	for e := from; e <= to; e++ {
		at := x(math.Pow(10, e))
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`+"\n", at, svgHeader-4, at, height-20)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#555" text-anchor="middle">%s</text>`+"\n", at, height-6, scale(math.Pow(10, e)))
	}
	for i, f := range rows {
		y := svgHeader + i*svgRow
		color := "#9aa4b1"
		if f.isOurs() {
			color = "#1a7f64"
		}
		start := x(math.Pow(10, from))
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#111" text-anchor="end">%s</text>`+"\n", svgLeft-8, y+16, html.EscapeString(f.Name))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", start, y+4, max(1, x(f.P50)-start), svgRow-10, color)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#111"/>`+"\n", x(f.P50), y+svgRow/2-1, x(f.P99), y+svgRow/2-1)
		if f.Goal != nil && f.Goal.P50 > 0 {
			at := x(f.Goal.P50)
			fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#c0392b" stroke-width="2"><title>goal: %g ms</title></line>`+"\n",
				at, y+1, at, y+svgRow-3, f.Goal.P50)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#111">%s</text>`+"\n", x(f.P99)+6, y+16, fmt.Sprintf("%.1f / %.1f ms", f.P50, f.P99))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// isOurs reports whether the figure is Glovebox's, not an alternative's.
func (f Figure) isOurs() bool {
	return !strings.HasPrefix(f.Name, prefixDocker) && (strings.HasPrefix(f.Name, "glovebox") || strings.Contains(f.Name, "callers"))
}

// scale returns the label of a position on the scale.
func scale(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%g s", ms/1000)
	}
	return fmt.Sprintf("%g ms", ms)
}
