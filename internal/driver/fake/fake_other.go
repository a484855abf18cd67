//go:build !linux

package fake

import (
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Hook does nothing on this system.
func Hook() {}

// New always fails on this system, because the guest needs Linux.
func New(Options) (driver.Driver, error) {
	return nil, sandbox.WithHint(driver.ErrUnavailable, "the fake driver runs on Linux")
}
