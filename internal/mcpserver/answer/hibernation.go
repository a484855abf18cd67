package answer

import (
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// HibernationText returns lines about the saved state of a sandbox, each after a line
// feed.
func HibernationText(h sandbox.Hibernation) (text string) {
	if !h.Saved.IsZero() {
		text += fmt.Sprintf("\nsaved on disk at %s, %s; its next use wakes it", h.Saved.UTC().Format(time.RFC3339), sandbox.FormatBytes(h.Bytes))
	}
	if h.Error != "" {
		text += fmt.Sprintf("\nthe last attempt to save or wake it, at %s, failed: %s", h.Failed.UTC().Format(time.RFC3339), h.Error)
	}
	return text
}
