package auto

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Candidate is a driver that may be chosen.
type Candidate struct {
	Name string
	Make func() (driver.Driver, error)
	// Unprobed takes the driver without a probe.
	Unprobed bool
}

// Options are the parameters of [Choose].
type Options struct {
	// Candidates are in the order in which they are tried. There is at least one.
	Candidates []Candidate
	// RequireKernel refuses drivers without a kernel of their own.
	RequireKernel bool
	Log           *slog.Logger
}

// A Choice is the driver that was chosen.
type Choice struct {
	Driver driver.Driver
	// Fallback is the reason why a driver without a kernel of its own was taken
	// from several candidates; "" if none was.
	Fallback string
}

// Choose makes the only candidate, or the first one that works here. If none
// works, it returns the first candidate, so that the driver's own error explains
// why. The error is of kind Unsupported if a kernel is required and no usable
// driver has one. The caller closes the driver.
func Choose(ctx context.Context, o Options) (_ Choice, err error) {
	tried := &attempts{}
	var first driver.Driver
	defer func() {
		if err != nil && first != nil {
			err = errors.Join(err, first.Close())
		}
	}()
	for _, c := range o.Candidates {
		d, err := c.Make()
		if err != nil {
			return Choice{}, fmt.Errorf("make driver %s: %w", c.Name, err)
		}
		boundary := d.Info().Boundary
		if o.RequireKernel && !boundary.OwnKernel() {
			tried.weak = append(tried.weak, fmt.Sprintf("%s has a boundary of another kind: %s", c.Name, boundary))
			if err := d.Close(); err != nil {
				return Choice{}, err
			}
			continue
		}
		if len(o.Candidates) == 1 || c.Unprobed {
			return Choice{Driver: d}, nil
		}
		err = d.Probe(ctx)
		if err == nil {
			chosen := Choice{Driver: d}
			if !boundary.OwnKernel() {
				chosen.Fallback = tried.reason()
			}
			if first != nil {
				err = first.Close()
			}
			first = nil
			return chosen, err
		}
		o.Log.Info("driver not used", "driver", c.Name, "error", err)
		tried.failed(c.Name, boundary, err)
		if first == nil {
			first = d
		} else if err := d.Close(); err != nil {
			return Choice{}, err
		}
	}
	if len(tried.weak) > 0 {
		return Choice{}, tried.refusal()
	}
	return Choice{Driver: first}, nil
}

// Control returns the boundary control of receipts. asked is the boundary that
// the configuration requires.
func (c Choice) Control(asked string) sandbox.Control {
	info := c.Driver.Info()
	control := sandbox.Control{
		Name: sandbox.ControlBoundary, Asked: asked, Value: string(info.Boundary),
		Mechanism: "driver " + info.Name, Enforced: true,
	}
	if c.Fallback != "" {
		control.Mechanism += ", because no better one works here: " + c.Fallback
	}
	return control
}

// Notice returns one line that says that the driver has no kernel of its own,
// and why it was chosen. It returns "" without a Fallback.
func (c Choice) Notice() string {
	if c.Fallback == "" {
		return ""
	}
	info := c.Driver.Info()
	return fmt.Sprintf("sandboxes are made by %s, boundary: %s; the embedded driver is not used (%s). "+
		"--driver %s asks for this, --require-isolation kernel refuses it", info.Name, info.Boundary, c.Fallback, info.Name)
}
