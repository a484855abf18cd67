package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/pool"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A warmer is a pool with its owner record in the store.
type warmer struct {
	*pool.Pool
	owner *store.Owner
}

// newWarmer makes a pool around a driver.
func (s *System) newWarmer(ctx context.Context, d driver.Driver) (*warmer, error) {
	c := s.opts.Config
	owner, err := s.store.RegisterOwner(ctx, false)
	if err != nil {
		return nil, err
	}
	runners, err := Runners(c.Languages)
	if err != nil {
		return nil, errors.Join(err, owner.Release(ctx))
	}
	prepare := preparer{runners, d}
	opts := pool.Options{
		Driver: d, Ledger: owner, Ready: prepare.start, Further: prepare.imports, Room: hasRoom,
		Busy: func() bool { return s.Engine.Stats().Runs >= runtime.NumCPU() },
		Max:  c.Pool.Size, Log: s.log, Metrics: s.metrics,
	}
	p, err := pool.New(opts)
	if err != nil {
		return nil, errors.Join(err, owner.Release(ctx))
	}
	return &warmer{p, owner}, nil
}

// run keeps boxes warm until ctx ends. It begins with one of the usual shape.
func (w *warmer) run(ctx context.Context, s *System) {
	if usual, err := s.Engine.Usual(ctx); err != nil {
		s.log.Warn("keep no sandbox ready", "error", err)
	} else if usual != nil {
		w.Keep(usual)
	}
	if err := w.Run(ctx); err != nil && ctx.Err() == nil {
		s.log.Error("pool", "error", err)
	}
}

// WaitWarm waits until the pool is full and all its boxes are completely warm.
// It returns an error of kind Unavailable after warmTime. Without a pool it
// returns at once.
func (s *System) WaitWarm(ctx context.Context) error {
	if s.warmer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		if st := s.warmer.Stats(); st.Target > 0 && st.Ready >= st.Target && st.Done == st.Ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Unavailable, "no sandbox is ready: %w", ctx.Err())
		case <-t.C:
		}
	}
}

// Warm returns the sandboxes of this driver that servers of the state directory
// have made ahead, or are making. They belong to no principal yet.
func (s *System) Warm(ctx context.Context) ([]string, error) {
	ids, err := s.store.WarmBoxes(ctx)
	if err != nil {
		return nil, err
	}
	live, err := s.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	d := s.driver
	if s.warmer != nil {
		d = s.warmer.Unwrap() // the pool does not list them
	}
	refs, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	// The store keeps claimed boxes in this list for a while, even after they
	// are destroyed.
	refs = slices.DeleteFunc(refs, func(ref string) bool {
		return slices.ContainsFunc(live, func(r store.Sandbox) bool { return r.Ref == ref })
	})
	ids = slices.DeleteFunc(ids, func(id string) bool {
		return !slices.ContainsFunc(refs, func(ref string) bool { return strings.Contains(ref, id) })
	})
	slices.Sort(ids)
	return ids, nil
}

// checkPool reports the state of the pool.
func (s *System) checkPool(ctx context.Context) Check {
	c := Check{Name: "pool", Status: CheckOK}
	size := s.opts.Config.Pool.Size
	warm, err := s.Warm(ctx)
	switch {
	case err != nil:
		return failed(c.Name, err)
	case size <= 0:
		c.Status, c.Detail = CheckNote, "servers make no sandboxes ahead: pool.size is 0"
	case s.driver.Info().Features.Metered:
		c.Status, c.Detail = CheckNote, "none are made ahead, because sandboxes of this driver cost money while they exist"
	default:
		c.Detail = fmt.Sprintf("%d made ahead by servers that run; each keeps up to %d, as demand asks", len(warm), size)
	}
	return c
}

// warmTime is the timeout of WaitWarm.
const warmTime = time.Minute

// close releases the owner record. No warm box may be left.
func (w *warmer) close(ctx context.Context) error {
	return w.owner.Release(ctx)
}

// A preparer warms boxes, so that their first caller need not wait.
type preparer struct {
	runners interpreter.Table
	driver  driver.Driver
}

// prepared are the languages to warm, in order of preference. A warm box has an
// interpreter of the first language that it supports.
var prepared = []string{"python", "javascript"}

// start starts the interpreter that most runs need. A box whose image has none
// is ready at once.
func (p preparer) start(ctx context.Context, b driver.Box, _ *driver.Spec) error {
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	for _, language := range prepared {
		runner, err := p.runners.Find(language)
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
		if errors.Is(err, sandbox.NotFound) {
			continue
		}
		if err != nil || len(runner.Prepare) == 0 {
			return err
		}
		return client.PrepareContext(ctx, made.ID, nil) // after the interpreter's own start-up work
	}
	return nil
}

// imports makes the started interpreter import the modules that its runner and
// the box's image name.
func (p preparer) imports(ctx context.Context, b driver.Box, spec *driver.Spec) error {
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	contexts, err := client.Contexts(ctx)
	if err != nil {
		return err
	}
	var image sandbox.Image
	if k, err := driver.Images(p.driver); err == nil && spec.Image != sandbox.ImageHost {
		if image, err = k.Image(ctx, spec.Image); err != nil {
			return err
		}
	}
	labels := interpreter.ReadLabels(image.Config.Labels)
	for _, c := range contexts {
		var modules []string
		if i := slices.IndexFunc(p.runners, func(r interpreter.Runner) bool { return r.Kernel == c.Language && len(r.Warm) > 0 }); i >= 0 {
			modules = p.runners[i].Warm
		}
		if labels.Kernel(p.runners) == c.Language {
			modules = slices.Concat(modules, labels.Warm)
		}
		if len(modules) == 0 {
			continue
		}
		if err := client.PrepareContext(ctx, c.ID, modules); err != nil {
			return err
		}
	}
	return nil
}
