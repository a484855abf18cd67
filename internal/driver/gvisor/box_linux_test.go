package gvisor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPauseObeysContext pauses and resumes a box while another operation has it
// awake, as a receipt does that the guest does not answer.
func TestPauseObeysContext(t *testing.T) {
	b := newBox(nil, nil, "box", func(*box) {})
	defer b.release()
	if err := b.asleep.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(context.Context) error{
		"pause":   b.Pause,
		"resume":  b.Resume,
		"receipt": func(ctx context.Context) error { _, err := b.Receipt(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := f(ctx); sandbox.KindOf(err) != sandbox.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	b.asleep.end()
	if err := b.asleep.take(t.Context()); err != nil {
		t.Error(err)
	}
}
