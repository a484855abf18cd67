package request

import (
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Boundary returns the control that describes the barrier around the driver's
// sandboxes: the configured one, unless it has no name.
func Boundary(configured sandbox.Control, info driver.Info) sandbox.Control {
	if configured.Name != "" {
		return configured
	}
	return sandbox.Control{
		Name: sandbox.ControlBoundary, Asked: "any", Value: string(info.Boundary),
		Mechanism: "driver " + info.Name, Enforced: true,
	}
}

// CheckReceipt refuses a sandbox that is not confined as it must be. A correct
// driver never returns one.
func CheckReceipt(r sandbox.Receipt, driver string, allowed []sandbox.ControlName) error {
	for _, name := range r.Unenforced() {
		if slices.Contains(allowed, name) {
			continue
		}
		c := r.Control(name)
		return sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "control %s is not enforced by driver %s: asked for %q, found %q", name, driver, c.Asked, c.Value),
			"run glovebox doctor to see why, or accept it with --allow-unenforced %s", name)
	}
	return nil
}
