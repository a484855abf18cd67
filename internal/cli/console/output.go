package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PrintJSON prints v as indented JSON.
func (s Streams) PrintJSON(v any) error {
	enc := json.NewEncoder(s.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Print prints data to standard output.
func (s Streams) Print(format string, args ...any) error {
	_, err := fmt.Fprintf(s.Out, format, args...)
	return err
}

// Say prints a message to standard error.
func (s Streams) Say(format string, args ...any) {
	fmt.Fprintf(s.Err, format+"\n", args...)
}

// Hint prints a hint, which may have several lines, to standard error.
func (s Streams) Hint(hint string) {
	label := "hint:"
	for line := range strings.SplitSeq(hint, "\n") {
		s.Say("%s %s", s.Painter(s.Err)(Yellow)(label), line)
		label = "     "
	}
}

// PrintTable prints rows in columns below a header of names.
func (s Streams) PrintTable(names []string, rows [][]string) error {
	w := tabwriter.NewWriter(s.Out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(names, "\t"))
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// Approximately formats d with one unit.
func Approximately(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d > sandbox.Forever/2:
		return "never"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0fh", d.Hours())
	default:
		return fmt.Sprintf("%.0fd", d.Hours()/24)
	}
}
