//go:build !linux

package fake

import (
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Hook does nothing here.
func Hook() {}

// New fails here: the guest needs Linux.
func New(Options) (driver.Driver, error) {
	return nil, sandbox.WithHint(driver.ErrUnavailable, "the fake driver runs on Linux")
}
