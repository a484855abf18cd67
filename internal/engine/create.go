package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
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
		e.opts.Metrics.SandboxStarted(ctx, e.now().Sub(begun), err)
	}()
	if err := request.CheckPrincipal(p); err != nil {
		return nil, err
	}
	from, err := e.From(ctx, p, &req)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = from.End(ctx, "", err)
		}
	}()
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
	// Now, too, so that a refused caller pulls no image and evicts no sandbox.
	if err := e.accounts.CheckCreate(ctx, p, limits); err != nil {
		return nil, err
	}
	secrets, err := request.AddHeaderRules(req.Network, e.secretsOf(p, req.Network), req.HeaderRules)
	if err != nil {
		return nil, err
	}
	image := ""
	err = trace.Do(ctx, "find image", func(ctx context.Context) (err error) {
		image, err = from.Image(func() (string, error) { return e.images.Prepare(ctx, p, req.Image, req.Progress) })
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
			ID: e.opts.Shard.NewID(), Name: req.Name, State: sandbox.Starting, Driver: e.name, Image: req.Image,
			Network: req.Network, Limits: limits, Created: now, Used: now, Workspace: req.Workspace, Volumes: slices.Clone(req.Volumes),
			Ends: ends, AtEnd: req.AtEnd, Restless: req.Restless, Labels: maps.Clone(req.Labels),
		},
		Principal: p, Owner: e.owner.ID(), Detached: e.opts.Detached, HasEnv: len(env) > 0,
	})
	b.env, b.image, b.writable, b.from = env, image, slices.Clone(req.Writable), from
	// The same context covers a caller that goes away, a stop, and a driver
	// that hangs.
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	b.endBy(cancel)
	defer func() {
		cancel()
		b.endBy(func() {}) // cancel holds the context, and so the caller's request
	}()
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
	_ = from.End(ctx, b.id, nil)
	b.begin()
	b.tellLease(ctx)
	b.copy.Keep()
	b.watchLease()
	b.release()
	e.log.Info("sandbox started", "sandbox", b.id, "image", req.Image, "took", b.since.Sub(now))
	return b, nil
}

// endBy sets the function that ends the creation of the sandbox.
func (b *liveSandbox) endBy(cancel context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel = cancel
}

// start makes the box, whose network has these secrets. If it fails, nothing is left
// of it.
func (b *liveSandbox) start(ctx context.Context, secrets []sandbox.Secret) (err error) {
	e := b.e
	// Insert the record first: the sweep takes a box without a record for a
	// stray.
	if err := trace.Do(ctx, "record sandbox", func(ctx context.Context) error {
		return e.store.AdmitSandbox(ctx, b.rec, e.accounts.Admit(b.rec.Limits))
	}); err != nil {
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
			b.mount, err = e.mounts.Hold(ctx, b.rec.Principal, b.rec.Workspace, b.rec.Volumes)
			return err
		})
		if err != nil {
			return err
		}
		b.mount.Wakes(b)
	}
	if b.copy, err = b.mount.Main().NewCopy(b); err != nil {
		return err
	}
	spec := e.spec(b.rec)
	spec.Image, spec.Writable, spec.Secrets = b.image, b.writable, secrets
	b.mount.SetIn(spec)
	err = trace.Do(ctx, "make box", func(ctx context.Context) (err error) {
		b.drv, err = b.from.Make(ctx, e.drv, spec)
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
	if err := request.CheckReceipt(receipt, e.name, e.opts.AllowUnenforced); err != nil {
		return err
	}
	receipt = append(sandbox.Receipt{request.Boundary(e.opts.Boundary, e.drv.Info())}, receipt...)
	if err := b.keepEnv(ctx); err != nil {
		return request.StartError(ctx, err)
	}
	if err := b.installAuthority(ctx, secrets); err != nil {
		return request.StartError(ctx, err)
	}
	if b.from != nil {
		if err := b.copy.Clear(ctx); err != nil {
			return request.StartError(ctx, err)
		}
	}
	if err := trace.Do(ctx, "copy workspace", b.copy.Out); err != nil {
		return request.StartError(ctx, err)
	}
	if err := ctx.Err(); err != nil {
		return request.StartError(ctx, err)
	}
	counts := b.e.accounts.Counts(ctx, b.drv)
	b.mu.Lock() // other calls read the record meanwhile
	b.rec.State, b.rec.Ref, b.rec.Receipt, b.rec.Used = sandbox.Running, b.drv.Ref(), e.receipts.of(receipt), e.now()
	rec := b.rec
	b.mu.Unlock()
	ok := false
	err = trace.Do(ctx, "record start", func(ctx context.Context) (err error) {
		ok, err = e.store.StartedSandbox(ctx, b.id, rec.Ref, rec.Receipt, rec.Used, usage.LabelOf(rec.Labels, e.opts.UsageLabel), counts)
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
		Containers:      e.opts.Containers,
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

// maxEnvFile bounds, in bytes, what is read back: the guest is not trusted.
const maxEnvFile = 6*request.MaxTexts + 64*request.MaxEnv

func (b *liveSandbox) keepEnv(ctx context.Context) error {
	if !b.rec.Detached || !b.rec.HasEnv {
		return nil
	}
	return guestlink.KeepEnv(ctx, b.guest, b.id, b.env)
}

func (b *liveSandbox) loadEnv(ctx context.Context) (err error) {
	if b.rec.HasEnv {
		b.env, err = guestlink.LoadEnv(ctx, b.guest, b.id, maxEnvFile, request.CheckEnv)
	}
	return err
}
