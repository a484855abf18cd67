package diagnosis

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// TestExplainStart tells a lack of namespaces from that of room on a disk.
func TestExplainStart(t *testing.T) {
	for op, unavailable := range map[string]bool{"fork/exec": true, "write": false} {
		err := ExplainStart(fmt.Errorf("start: %w", &os.PathError{Op: op, Path: "x", Err: unix.ENOSPC}))
		if got := errors.Is(err, driver.ErrUnavailable); got != unavailable || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("no space to %s: %v; that the driver is unavailable: %v, want %v", op, err, got, unavailable)
		}
	}
}
