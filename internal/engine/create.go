package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Create makes a sandbox and returns when it runs. The error is of kind
// [sandbox.Exhausted] when this process has MaxSandboxes and no place became
// free. It is of kind [sandbox.Unsupported] when a control cannot be enforced
// here. If ctx ends first, nothing is left.
func (e *Engine) Create(ctx context.Context, p sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error) {
	b, err := e.create(trace.With(ctx, e.opts.Trace), p, req)
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, "create sandbox", "")
	}
	return b.view(), nil
}

func (e *Engine) create(ctx context.Context, p sandbox.Principal, req sandbox.CreateRequest) (_ *liveSandbox, err error) {
	ctx, span := trace.Start(ctx, "create sandbox")
	begun := e.now()
	defer func() {
		span.End(err)
		e.opts.Metrics.SandboxStarted(e.now().Sub(begun), err)
	}()
	if err := request.CheckPrincipal(p); err != nil {
		return nil, err
	}
	if req.Image == "" {
		image, err := e.images.Default(ctx, p, "")
		if err != nil {
			return nil, err
		}
		req.Image = image
	}
	limits, err := e.rules.CheckCreate(&req)
	if err != nil {
		return nil, err
	}
	secrets, err := request.AddHeaderRules(req.Network, e.secretsOf(p, req.Network), req.HeaderRules)
	if err != nil {
		return nil, err
	}
	image := ""
	err = trace.Do(ctx, "find image", func(ctx context.Context) (err error) {
		image, err = e.images.Prepare(ctx, p, req.Image, req.Progress)
		return err
	})
	if err != nil {
		return nil, err
	}
	now := e.now()
	var ends time.Time
	if req.TTL != 0 {
		ends = now.Add(req.TTL)
	}
	env := guestlink.SecretEnv(secrets)
	maps.Copy(env, req.Env)
	b := e.newLive(store.Sandbox{
		Sandbox: sandbox.Sandbox{
			ID: sandbox.NewID(), Name: req.Name, State: sandbox.Starting, Driver: e.name, Image: req.Image,
			Network: req.Network, Limits: limits, Created: now, Used: now, Workspace: req.Workspace,
			Ends: ends, AtEnd: req.AtEnd, Restless: req.Restless, Labels: maps.Clone(req.Labels),
		},
		Principal: p, Owner: e.owner.ID(), Detached: e.opts.Detached, HasEnv: len(env) > 0,
	})
	b.env, b.image, b.writable = env, image, slices.Clone(req.Writable)
	// The same context covers a caller that goes away, a stop, and a driver
	// that hangs.
	ctx, b.cancel = context.WithTimeout(ctx, createTimeout)
	defer b.cancel()
	span.Set("sandbox", b.id)
	span.Set("image", req.Image)
	if err := trace.Do(ctx, "find a place", func(ctx context.Context) error { return e.register(ctx, b) }); err != nil {
		b.fail()
		close(b.ready)
		return nil, err
	}
	if err := b.start(ctx, secrets); err != nil {
		err = b.notStarted(err)
		b.fail()
		e.forget(b)
		close(b.ready)
		return nil, err
	}
	b.begin()
	b.tellLease(ctx)
	b.copy.Keep()
	b.watchLease()
	b.release()
	e.log.Info("sandbox started", "sandbox", b.id, "image", req.Image, "took", b.since.Sub(now))
	return b, nil
}

// start makes the box, whose network has these secrets. If it fails, nothing is left
// of it.
func (b *liveSandbox) start(ctx context.Context, secrets []sandbox.Secret) (err error) {
	e := b.e
	// Insert the record first: the sweep takes a box without a record for a
	// stray.
	if err := trace.Do(ctx, "record sandbox", func(ctx context.Context) error { return e.store.InsertSandbox(ctx, b.rec) }); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.undo())
		}
	}()
	if b.rec.Workspace != "" {
		// The sandbox's record exists by now, so the workspace cannot be
		// removed.
		err = trace.Do(ctx, "mount workspace", func(ctx context.Context) (err error) {
			b.mount, err = e.mounts.Mount(ctx, b.rec.Principal, b.rec.Workspace, true)
			return err
		})
		if err != nil {
			return err
		}
		b.mount.Wakes(b)
	}
	if b.copy, err = b.mount.NewCopy(b); err != nil {
		return err
	}
	spec := e.spec(b.rec)
	spec.Image, spec.Workspace, spec.Writable, spec.Secrets = b.image, b.mount.Path(), b.writable, secrets
	err = trace.Do(ctx, "make box", func(ctx context.Context) (err error) {
		b.drv, err = e.drv.Create(ctx, spec)
		return err
	})
	if err != nil {
		return request.StartError(ctx, err)
	}
	b.guest = b.dialGuest()
	var receipt sandbox.Receipt
	err = trace.Do(ctx, "read receipt", func(ctx context.Context) (err error) {
		receipt, err = b.drv.Receipt(ctx)
		return err
	})
	if err != nil {
		return request.StartError(ctx, err)
	}
	if err := e.checkReceipt(receipt); err != nil {
		return err
	}
	receipt = append(sandbox.Receipt{e.boundary()}, receipt...)
	if err := b.keepEnv(ctx); err != nil {
		return request.StartError(ctx, err)
	}
	if err := b.installAuthority(ctx, secrets); err != nil {
		return request.StartError(ctx, err)
	}
	if err := trace.Do(ctx, "copy workspace", b.copy.Out); err != nil {
		return request.StartError(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		return request.StartError(ctx, err)
	}
	b.mu.Lock() // other calls read the record meanwhile
	b.rec.State, b.rec.Ref, b.rec.Receipt, b.rec.Used = sandbox.Running, b.drv.Ref(), receipt, e.now()
	rec := b.rec
	b.mu.Unlock()
	ok := false
	err = trace.Do(ctx, "record start", func(ctx context.Context) (err error) {
		ok, err = e.store.StartedSandbox(ctx, b.id, rec.Ref, rec.Receipt, rec.Used, usage.LabelOf(rec.Labels, e.opts.UsageLabel))
		return err
	})
	if err == nil && !ok {
		err = sandbox.Errorf(sandbox.Conflict, "the sandbox was stopped while it started")
	}
	return err
}

// spec returns the driver's specification for a sandbox. Its lease is empty: no other
// process can use a box that no record of a running sandbox names. The engine sets
// another lease when the sandbox has started.
func (e *Engine) spec(rec store.Sandbox) *driver.Spec {
	var lease *driver.Lease
	if rec.Detached {
		lease = &driver.Lease{}
	}
	return &driver.Spec{
		ID:              rec.ID,
		Image:           rec.Image, // the caller may replace it by the ID
		Hostname:        request.Hostname(rec.Name),
		Limits:          rec.Limits,
		Network:         rec.Network,
		NetworkTerms:    e.opts.NetworkTerms,
		Secrets:         e.secretsOf(rec.Principal, rec.Network),
		Detached:        rec.Detached,
		Lease:           lease,
		AllowUnenforced: slices.Clone(e.opts.AllowUnenforced),
	}
}

// Usual returns the specification of a sandbox that was created with all
// defaults, without an identifier. A pool uses it to keep boxes ready. It is
// nil where the image of such a sandbox is not here yet.
func (e *Engine) Usual(ctx context.Context) (*driver.Spec, error) {
	image, err := e.images.Default(ctx, store.OperatorImage, "")
	if err != nil {
		return nil, err
	}
	req := sandbox.CreateRequest{Image: image}
	limits, err := e.rules.CheckCreate(&req)
	if err != nil {
		return nil, err
	}
	if image != sandbox.ImageHost {
		k, err := driver.Images(e.drv)
		if err != nil {
			return nil, nil
		}
		i, err := k.Image(ctx, image)
		if errors.Is(err, sandbox.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		image = i.ID
	}
	rec := store.Sandbox{Detached: e.opts.Detached}
	rec.Image, rec.Network, rec.Limits = image, req.Network, limits
	return e.spec(rec), nil
}

// undo removes what start made.
func (b *liveSandbox) undo() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.e.ctx), destroyTimeout)
	defer cancel()
	if b.guest != nil {
		b.guest.Close()
	}
	if b.drv != nil {
		if err := b.drv.Destroy(ctx); err != nil && !driver.IsGone(err) {
			// Without its record the box is a stray, and the sweep removes it.
			b.e.log.Error("destroy sandbox that did not start", "sandbox", b.id, "error", err)
		}
	}
	b.unmount()
	return b.e.store.DeleteSandbox(ctx, b.id)
}

// boundary returns the control that describes the barrier around the driver's
// sandboxes.
func (e *Engine) boundary() sandbox.Control {
	if e.opts.Boundary.Name != "" {
		return e.opts.Boundary
	}
	return sandbox.Control{
		Name: sandbox.ControlBoundary, Asked: "any", Value: string(e.drv.Info().Boundary),
		Mechanism: "driver " + e.name, Enforced: true,
	}
}

// checkReceipt refuses a sandbox that is not confined as it must be. A correct
// driver never returns one.
func (e *Engine) checkReceipt(r sandbox.Receipt) error {
	for _, name := range r.Unenforced() {
		if slices.Contains(e.opts.AllowUnenforced, name) {
			continue
		}
		c := r.Control(name)
		return sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "control %s is not enforced by driver %s: asked for %q, found %q", name, e.name, c.Asked, c.Value),
			"run glovebox doctor to see why, or accept it with --allow-unenforced %s", name)
	}
	return nil
}

// envFile is where a detached sandbox keeps its environment. Another process
// that takes the sandbox over needs it, and it may hold secrets, so it is not
// stored on the host. The file belongs to root. Every program in the box gets
// the same environment, so the box may hold it.
func envFile(id string) string { return "/tmp/.glovebox-env/" + id + ".json" }

// maxEnvFile bounds, in bytes, what is read back: the guest is not trusted.
const maxEnvFile = 6*request.MaxTexts + 64*request.MaxEnv

func (b *liveSandbox) keepEnv(ctx context.Context) error {
	if !b.rec.Detached || !b.rec.HasEnv {
		return nil
	}
	text, err := json.Marshal(b.env)
	if err != nil {
		return err
	}
	_, err = b.guest.Write(ctx, envFile(b.id), bytes.NewReader(text), guestapi.WriteOptions{User: sandbox.Root})
	return sandbox.Wrap(err, "keep environment", "")
}

func (b *liveSandbox) loadEnv(ctx context.Context) error {
	if !b.rec.HasEnv {
		return nil
	}
	r, size, err := b.guest.Read(ctx, envFile(b.id), 0, -1, guestapi.FileOptions{User: sandbox.Root})
	if err != nil {
		return sandbox.Wrap(err, "read environment", "")
	}
	defer r.Close()
	if size > maxEnvFile {
		return sandbox.Errorf(sandbox.Internal, "read environment: %d bytes are too many", size)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxEnvFile))
	if err != nil {
		return sandbox.Wrap(err, "read environment", "")
	}
	env := map[string]string{}
	if err := json.Unmarshal(text, &env); err != nil {
		return fmt.Errorf("read environment: the file has changed")
	}
	if err := request.CheckEnv(env); err != nil {
		return sandbox.Wrap(err, "read environment", "")
	}
	b.env = env
	return nil
}
