package app

import (
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// attempts records the drivers that were not taken, with the reasons.
type attempts struct {
	weak    []string // refused by the configuration
	kernels []string // with a kernel of their own, but not usable here
	hint    string   // remedy for the first of kernels that has one
}

// failed records a driver that does not work here.
func (a *attempts) failed(name string, b sandbox.Boundary, err error) {
	if !b.OwnKernel() {
		return
	}
	a.kernels = append(a.kernels, name+": "+oneLine(err.Error()))
	if a.hint == "" {
		a.hint = sandbox.HintOf(err)
	}
}

// reason returns why no driver with a kernel of its own was taken.
func (a *attempts) reason() string {
	if len(a.kernels) == 0 {
		return "this program has no embedded driver"
	}
	return strings.Join(a.kernels, "; ")
}

// refusal returns the error for a configuration that requires a kernel of its
// own, if no driver has one.
func (a *attempts) refusal() error {
	why := a.weak
	if len(a.kernels) > 0 {
		why = a.kernels
	}
	err := sandbox.Errorf(sandbox.Unsupported, "sandboxes must have a kernel of their own (require_isolation: %s), and no driver here gives them one: %s",
		config.IsolationKernel, strings.Join(why, "; "))
	if a.hint != "" {
		return sandbox.WithHint(err, "%s", a.hint)
	}
	return sandbox.WithHint(err, "use the driver gvisor on Linux, or e2b; or accept a shared kernel with --require-isolation %s", config.IsolationAny)
}

// oneLine replaces line breaks and repeated spaces by single spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// boundary returns the boundary control of receipts.
func (s *System) boundary() sandbox.Control {
	info := s.driver.Info()
	c := sandbox.Control{
		Name: sandbox.ControlBoundary, Asked: s.opts.Config.RequireIsolation, Value: string(info.Boundary),
		Mechanism: "driver " + info.Name, Enforced: true,
	}
	if s.fallback != "" {
		c.Mechanism += ", because no better one works here: " + s.fallback
	}
	return c
}

// Fallback returns one line that says that "auto" took a driver without a kernel
// of its own, and why. It returns "" if "auto" did not.
func (s *System) Fallback() string {
	if s.fallback == "" {
		return ""
	}
	name := s.DriverName()
	return fmt.Sprintf("sandboxes are made by %s, boundary: %s; the embedded driver is not used (%s). "+
		"--driver %s asks for this, --require-isolation %s refuses it", name, s.driver.Info().Boundary, s.fallback, name, config.IsolationKernel)
}

// checkBoundary reports the boundary of sandboxes here.
func (s *System) checkBoundary() Check {
	if line := s.Fallback(); line != "" {
		return Check{Name: "boundary", Status: CheckWarning, Detail: line}
	}
	return Check{Name: "boundary", Status: CheckOK, Detail: string(s.driver.Info().Boundary)}
}
