package request

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/service"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Rules are the rules of one server for requests: its bounds, its defaults, and
// the features of its driver.
type Rules struct {
	Driver     string // the driver's name
	Features   driver.Features
	Workspaces bool // the server keeps workspaces

	// Defaults and Network fill in what a request for a sandbox leaves out.
	// Maxima and MaxNetwork are the most that it may ask for.
	Defaults, Maxima    sandbox.Limits
	Network, MaxNetwork sandbox.Network
	// RunTimeout and MaxRunTimeout are the same for the timeout of a run.
	// [sandbox.Forever] is as long as its sandbox.
	RunTimeout, MaxRunTimeout time.Duration
}

// CannotHibernate returns the error for a driver that cannot pause sandboxes.
func (r *Rules) CannotHibernate() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "driver %s cannot pause sandboxes", r.Driver),
		"use another driver, or stop the sandbox")
}

// CheckCreate checks a request for a sandbox, and returns its limits with the
// defaults filled in.
func (r *Rules) CheckCreate(req *sandbox.CreateRequest) (sandbox.Limits, error) {
	none := sandbox.Limits{}
	if len(req.Name) > maxName || !utf8.ValidString(req.Name) || strings.ContainsFunc(req.Name, unicode.IsControl) {
		return none, sandbox.WithHint(Invalid("name: %s is not a name", excerpt.Quote(req.Name)),
			"use up to %d bytes without control characters", maxName)
	}
	if req.Image == "" { // if the driver has that; see defaultImage
		req.Image = sandbox.ImageHost
	}
	if len(req.Image) > maxImage || !utf8.ValidString(req.Image) ||
		strings.ContainsFunc(req.Image, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return none, sandbox.WithHint(Invalid("image: %s is not an image", excerpt.Quote(req.Image)),
			"use %q or a reference such as debian:stable-slim", sandbox.ImageHost)
	}
	if err := r.checkWorkspace(req.Workspace); err != nil {
		return none, err
	}
	if err := r.checkVolumes(req); err != nil {
		return none, err
	}
	if err := checkWritable(req.Writable); err != nil {
		return none, err
	}
	network, err := r.CheckNetwork(req.Network)
	if err != nil {
		return none, err
	}
	req.Network = network
	if err := CheckEnv(req.Env); err != nil {
		return none, err
	}
	if TextSize(nil, req.Env) > MaxTexts {
		return none, TooMuchText()
	}
	if err := checkLabels(req.Labels); err != nil {
		return none, err
	}
	limits := req.Limits.Or(r.Defaults)
	if req.TTL != 0 && req.Limits.Idle == 0 {
		limits.Idle = limits.Lifetime
		if most := r.Maxima.Idle; most != 0 {
			limits.Idle = min(limits.Idle, most)
		}
	}
	if err := limits.Check(r.Maxima); err != nil {
		return none, err
	}
	// A sandbox does not outlive its lifetime, so its end is then at the latest.
	req.TTL = min(req.TTL, limits.Lifetime)
	return limits, r.checkEnd(req)
}

// checkEnd checks the end that a request sets for its sandbox.
func (r *Rules) checkEnd(req *sandbox.CreateRequest) error {
	if req.TTL != 0 {
		if err := CheckTTL(req.TTL); err != nil {
			return err
		}
	}
	switch req.AtEnd {
	case "", sandbox.AtEndStop:
		return nil
	case sandbox.AtEndHibernate, sandbox.AtEndHibernateFiles:
		if !r.Features.Pause {
			return r.CannotHibernate()
		}
		if req.AtEnd == sandbox.AtEndHibernateFiles && !r.Features.Restart {
			return driver.NoRestart()
		}
		return nil
	}
	return Invalid("at_end: %s is not a known end of a sandbox", excerpt.Quote(string(req.AtEnd)))
}

// checkWorkspace checks that a sandbox can have a workspace of that name.
func (r *Rules) checkWorkspace(name string) error {
	if name == "" {
		return nil
	}
	if err := CheckWorkspaceName(name); err != nil {
		return err
	}
	if !r.Workspaces || !r.Features.Workspace && !r.Features.WorkspaceCopied {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "workspace: driver %s cannot mount one", r.Driver),
			"leave the workspace out, or use another driver: glovebox doctor lists them")
	}
	return nil
}

// CheckNetwork returns the requested policy in canonical form, or the default
// one. It fails if the operator does not allow the policy.
func (r *Rules) CheckNetwork(asked sandbox.Network) (sandbox.Network, error) {
	n, err := sandbox.ParseNetwork(string(asked))
	if err != nil {
		return "", err
	}
	if n == "" {
		n = r.Network
	}
	if err := n.Within(r.MaxNetwork); err != nil {
		return "", err
	}
	if n != sandbox.NetworkNone && !r.Features.Network {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "network: driver %s cannot enforce %s", r.Driver, excerpt.Quote(string(n))),
			"use %q, or another driver: glovebox doctor lists them", sandbox.NetworkNone)
	}
	return n, nil
}

// AllowedNetwork returns what the operator and the driver allow of a policy.
func (r *Rules) AllowedNetwork(n sandbox.Network) sandbox.Network {
	if !r.Features.Network {
		return sandbox.NetworkNone
	}
	return n.Common(r.MaxNetwork)
}

// CheckRun checks a request for a run, and fills in its defaults.
func (r *Rules) CheckRun(req *sandbox.RunRequest) error {
	if err := checkProgram(req); err != nil {
		return err
	}
	if err := checkContext(req); err != nil {
		return err
	}
	if req.Dir != "" { // else the guest starts it in the working directory
		if err := CheckPath("cwd", req.Dir); err != nil {
			return err
		}
		if !utf8.ValidString(req.Dir) {
			return Invalid("cwd: is not UTF-8")
		}
		req.Dir = Absolute(req.Dir)
	}
	if err := CheckEnv(req.Env); err != nil {
		return err
	}
	if len(req.Stdin) > maxStdin {
		return sandbox.WithHint(Invalid("stdin: %d bytes are more than %d", len(req.Stdin), maxStdin),
			"write the data to a file and read it from there")
	}
	if p := req.PTY; p != nil {
		if err := CheckTerminal(*p); err != nil {
			return err
		}
	}
	if req.Service != nil {
		if err := r.checkService(req); err != nil {
			return err
		}
	}
	if req.RollbackOnFailure {
		if req.Service != nil {
			return sandbox.WithHint(Invalid("rollback_on_failure: a service has none"), "leave it out, or start a run that is no service")
		}
		if !r.Features.Rollback {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "rollback_on_failure: this driver cannot return a sandbox to a snapshot"),
				"leave it out, or use the driver gvisor")
		}
	}
	if req.Timeout == 0 {
		req.Timeout = r.RunTimeout
	}
	if err := r.CheckTimeout(req.Timeout); err != nil {
		return err
	}
	req.Timeout = max(req.Timeout, time.Millisecond)
	return nil
}

// checkService checks a request for a service.
func (r *Rules) checkService(req *sandbox.RunRequest) error {
	for _, c := range []struct {
		arg   string
		given bool
	}{
		{"stdin", req.Stdin != nil || req.KeepStdin}, {"terminal", req.PTY != nil}, {"context", req.Context != ""},
		{"timeout", req.Timeout != 0 && req.Timeout < sandbox.Forever},
	} {
		if c.given {
			return sandbox.WithHint(Invalid("%s: a service has none", c.arg), "leave it out, or start a run that is no service")
		}
	}
	if r.MaxRunTimeout < sandbox.Forever {
		return sandbox.WithHint(Invalid("service: it would run longer than the maximum of runs, %v", r.MaxRunTimeout),
			"start a run with a timeout, or ask the operator to lift the maximum of runs")
	}
	if f := r.Features; req.Service.Wake == sandbox.WakeRequest && (!f.Pause || f.ColdPause || !f.Ports) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "wake: sandboxes of driver %s do not rest", r.Driver), "leave it out")
	}
	req.Timeout, req.Plots = sandbox.Forever, false
	return service.Check(req.Service)
}

// CheckTimeout checks the timeout of a program.
func (r *Rules) CheckTimeout(d time.Duration) error {
	if d >= sandbox.Forever && r.MaxRunTimeout < sandbox.Forever {
		return sandbox.WithHint(Invalid("timeout: as long as the sandbox is above the maximum, %v", r.MaxRunTimeout),
			"ask for less, or ask the operator to raise the maximum of runs")
	}
	if d < 0 || d > r.MaxRunTimeout {
		return sandbox.WithHint(Invalid("timeout: %v is not between 0 and the maximum, %v", d, r.MaxRunTimeout),
			"ask for less, or ask the operator to raise the maximum of runs")
	}
	return nil
}
