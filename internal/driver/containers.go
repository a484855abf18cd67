package driver

import "github.com/glovebox-dev/glovebox/internal/sandbox"

// RefuseContainers returns the error for [Spec].Containers of a driver without that
// ability. It is of kind [sandbox.Unsupported].
func RefuseContainers() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this driver cannot let sandboxes run containers of their own"),
		"use the driver gvisor, or set sandbox.containers to false")
}
