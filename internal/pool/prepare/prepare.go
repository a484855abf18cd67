package prepare

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/kernels"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Interpreters prepares the interpreters of a driver's boxes.
type Interpreters struct {
	// Runners say which languages have contexts, and which modules to import.
	Runners interpreter.Table
	// Driver makes the boxes, and perhaps keeps their images.
	Driver driver.Driver
}

// Start starts the interpreter that most runs need: that of the first language
// in the table that the box has. A box whose image has none
// is ready at once.
func (p Interpreters) Start(ctx context.Context, b driver.Box, _ *driver.Spec) error {
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	for _, l := range language.WithContexts() {
		if !l.Context.Ahead {
			continue
		}
		runner, err := p.Runners.Find(l.Name)
		if err != nil || runner.Kernel == "" {
			continue
		}
		env := interpreter.PackageEnv()
		maps.Copy(env, runner.Environ(sandbox.WorkDir))
		made, err := client.CreateContext(ctx, sandbox.User, &guestapi.ContextRequest{
			ID:       guestapi.DefaultContextID(runner.Kernel),
			Language: runner.Kernel,
			Env:      env,
			Prepare:  runner.Prepare,
		})
		if errors.Is(err, sandbox.NotFound) || errors.Is(err, sandbox.Unsupported) {
			continue // the image lacks the interpreter, or the kernel that the runner selects
		}
		if err != nil || len(runner.Prepare) == 0 {
			return err
		}
		return client.PrepareContext(ctx, made.ID, nil) // after the interpreter's own start-up work
	}
	return nil
}

// Import makes the started interpreter import the modules that its runner and
// the box's image name. It reports whether a clone of the box draws random numbers of
// its own: a Python that is told so does.
func (p Interpreters) Import(ctx context.Context, b driver.Box, spec *driver.Spec) (clonable bool, err error) {
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	contexts, err := client.Contexts(ctx)
	if err != nil {
		return false, err
	}
	var image sandbox.Image
	if k, err := driver.Images(p.Driver); err == nil && spec.Image != sandbox.ImageHost {
		if image, err = k.Image(ctx, spec.Image); err != nil {
			return false, err
		}
	}
	clonable = true
	labels := interpreter.ReadLabels(image.Config.Labels)
	for _, c := range contexts {
		kernel, known := kernels.Find(c.Language)
		clonable = clonable && known && kernel.Cloned() != nil
		var modules []string
		if i := slices.IndexFunc(p.Runners, func(r interpreter.Runner) bool { return r.Kernel == c.Language && len(r.Warm) > 0 }); i >= 0 {
			modules = p.Runners[i].Warm
		}
		if labels.Kernel(p.Runners) == c.Language {
			modules = slices.Concat(modules, labels.Warm)
		}
		if len(modules) == 0 {
			continue
		}
		if err := client.PrepareContext(ctx, c.ID, modules); err != nil {
			return false, err
		}
	}
	return clonable, nil
}
