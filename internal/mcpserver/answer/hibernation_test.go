package answer

import (
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestHibernationText(t *testing.T) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for want, h := range map[string]sandbox.Hibernation{
		"": {},
		"\nsaved on disk at 2026-11-26T12:00:00Z, 1.5 KiB; its next use wakes it":                  {Saved: at, Bytes: 1536},
		"\nthe last attempt to save or wake it, at 2026-11-26T12:00:00Z, failed: the disk is full": {Error: "the disk is full", Failed: at},
	} {
		if got := HibernationText(h); got != want {
			t.Errorf("%+v: %q, want %q", h, got, want)
		}
	}
}
