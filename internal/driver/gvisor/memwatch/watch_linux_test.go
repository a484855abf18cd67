package memwatch

import (
	"testing"
	"time"
)

func TestNextLook(t *testing.T) {
	for room, want := range map[int64]time.Duration{
		0:         shortestLook,
		1 << 20:   shortestLook,
		512 << 20: 125 * time.Millisecond,
		64 << 30:  longestLook,
	} {
		if got := nextLook(room); got != want {
			t.Errorf("nextLook(%d) = %v, want %v", room, got, want)
		}
	}
}
