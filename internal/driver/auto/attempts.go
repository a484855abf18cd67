package auto

import (
	"strings"

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
	err := sandbox.Errorf(sandbox.Unsupported, "sandboxes must have a kernel of their own (require_isolation: kernel), and no driver here gives them one: %s",
		strings.Join(why, "; "))
	if a.hint != "" {
		return sandbox.WithHint(err, "%s", a.hint)
	}
	return sandbox.WithHint(err, "use the driver gvisor on Linux, or e2b; or accept a shared kernel with --require-isolation any")
}

// oneLine replaces line breaks and repeated spaces by single spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
