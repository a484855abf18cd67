package answer

import (
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxLeftOut bounds the files that a text names as left out.
const maxLeftOut = 10

// DiffText shows the changes for models, and the counts after them.
func DiffText(d *sandbox.Diff) string {
	var b strings.Builder
	b.WriteString(d.Text)
	fmt.Fprintf(&b, "[in %s: %d created, %d modified, %d removed", ShownName(d.Path), d.Created, d.Modified, d.Removed)
	for i, f := range d.LeftOut {
		if i == maxLeftOut {
			fmt.Fprintf(&b, "; %d more have no diff", len(d.LeftOut)-i)
			break
		}
		fmt.Fprintf(&b, "; no diff of %s: %s", ShownName(f.Path), ShownName(f.Reason))
	}
	if d.NotShown > 0 {
		fmt.Fprintf(&b, "; %d changed files are not shown: use a narrower path", d.NotShown)
	}
	if d.Incomplete {
		fmt.Fprintf(&b, "; %s, and nothing after %s was looked at", ShownName(d.Reason), ShownName(d.At))
	}
	b.WriteByte(']')
	return b.String()
}
