package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Create implements [driver.Driver].
func (d *Driver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := d.create(ctx, spec)
	if err != nil {
		return nil, sandbox.Wrap(err, "create box", spec.ID)
	}
	return b, nil
}

func (d *Driver) create(ctx context.Context, spec *driver.Spec) (*box, error) {
	e, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.check(e, spec); err != nil {
		return nil, err
	}
	image, err := d.image(ctx, e, spec.Image)
	if err != nil {
		return nil, err
	}
	k := &kept{Spec: *spec, Disk: d.diskMode(e, spec)}
	if k.Spec.Writable, err = d.missing(ctx, e, image.id, spec.Writable); err != nil {
		return nil, err
	}
	b, err := d.createOnce(ctx, e, k, image, false)
	switch {
	case errors.Is(err, errNoQuota):
		d.mu.Lock()
		e.noQuota = true
		d.mu.Unlock()
		k.Disk = d.diskMode(e, spec)
		b, err = d.createOnce(ctx, e, k, image, false)
	case errors.Is(err, errNoIPv6):
		d.mu.Lock()
		e.noIPv6 = true
		d.mu.Unlock()
		b, err = d.createOnce(ctx, e, k, image, false)
	case errors.Is(err, errStartFailed):
		// The volume with the guest may have been emptied.
		d.opts.Log.Warn("the guest does not start; putting it into its volume again", "error", err)
		b, err = d.createOnce(ctx, e, k, image, true)
	}
	return b, err
}

// diskMode returns how the engine can bound the disk of a box, as far as is known.
func (d *Driver) diskMode(e *engine, spec *driver.Spec) diskMode {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case allowed(spec, sandbox.ControlDisk):
		return diskUnbounded
	case e.quotas() && !e.noQuota:
		return diskQuota
	}
	return diskMemory
}

var (
	// errNoQuota means that the engine cannot bound a container's layer.
	errNoQuota = errors.New("the engine has no quota for a container's layer")
	// errNoIPv6 means that the engine's machine has no IPv6.
	errNoIPv6 = errors.New("there is no IPv6")
	// errStartFailed means that the guest does not start.
	errStartFailed = sandbox.Errorf(sandbox.Unavailable, "the guest does not start")
)

// createOnce makes a box. If it fails, it leaves nothing.
func (d *Driver) createOnce(ctx context.Context, e *engine, k *kept, image *runnerImage, refill bool) (_ *box, err error) {
	volume, err := d.guestVolume(ctx, e, image.id, refill)
	if err != nil {
		return nil, err
	}
	etc, err := d.settingsDir(ctx, e, image.id, refill)
	if err != nil {
		return nil, err
	}
	workspace, err := d.mountedFrom(ctx, e, k.Spec.Workspace)
	if err != nil {
		return nil, err
	}
	order, err := d.config(e, k, image, volume, etc, workspace)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	call, cancel := steady(ctx)
	defer cancel()
	if _, err := e.ContainerCreate(call, order); err != nil {
		text := err.Error()
		switch {
		case k.Disk == diskQuota && (strings.Contains(text, "storage-opt") || strings.Contains(text, "storage opt") || strings.Contains(text, "quota")):
			return nil, fmt.Errorf("%w: %w", errNoQuota, err)
		case errdefs.IsConflict(err) || strings.Contains(text, "is already in use"):
			return nil, sandbox.Errorf(sandbox.Conflict, "there is such a container: %w", err)
		case strings.Contains(text, settingsPrefix):
			return nil, fmt.Errorf("%w: %w", errStartFailed, err)
		case strings.Contains(text, "bind source path") || strings.Contains(text, "is not shared") || strings.Contains(text, `for type "bind"`):
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the engine does not have the workspace: %w", err),
				"if this program is in a container, set SANDBOX_ROOT and SANDBOX_HOST_PATH; if the engine is on another machine, have it keep workspaces: GLOVEBOX_DOCKER_WORKSPACES=volume")
		case errdefs.IsNotFound(err):
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image %s was removed meanwhile: %w", k.Spec.Image, err), "try again")
		}
		return nil, e.explain(err)
	}
	b := d.newBox(e, k)
	defer func() {
		if err != nil {
			b.release()
			err = errors.Join(err, d.remove(ctx, e, k.Spec.ID))
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The guest of an attached box lives as long as this connection.
	io, err := e.startAttached(call, k.Spec.ID)
	if err != nil {
		return nil, startError(e, k, err)
	}
	b.adopt(guestapi.NewCarrier(io))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ask, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	in, err := b.guest.Limits(ask)
	if err != nil {
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		return nil, fmt.Errorf("%w: %w: %q", errStartFailed, err, io.stderr())
	}
	if err := b.checkMounted(ask); err != nil {
		return nil, err
	}
	if k.Spec.Network != sandbox.NetworkNone {
		if err := b.startNetwork(ctx, image.id, volume); err != nil {
			return nil, err
		}
		if in, err = b.guest.Limits(ask); err != nil {
			return nil, err
		}
	}
	receipt := b.receiptOf(in, b.networkInForce(ctx))
	if k.Keeper != "" {
		return b, nil // it runs no user code, and its disk holds the workspaces
	}
	for _, name := range receipt.Unenforced() {
		if allowed(&k.Spec, name) {
			continue
		}
		c := receipt.Control(name)
		if name == sandbox.ControlDisk && k.Disk == diskQuota {
			return nil, fmt.Errorf("%w: %s", errNoQuota, c.Value)
		}
		return nil, e.cannot(name, fmt.Sprintf("asked for %s, found %q", c.Asked, c.Value))
	}
	return b, nil
}

// checkMounted makes sure that programs may write the workspace. If the engine maps
// user IDs, the workspace belongs to another user inside the box.
func (b *box) checkMounted(ctx context.Context) error {
	if b.kept.Spec.Workspace == "" {
		return nil
	}
	entry, err := b.guest.Stat(ctx, sandbox.WorkDir, guestapi.FileOptions{User: sandbox.Root})
	if err != nil {
		return err
	}
	if entry.Owner != sandbox.User {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the workspace belongs to %s in the box, as the engine has users of its own", entry.Owner),
			"have the engine keep workspaces: GLOVEBOX_DOCKER_WORKSPACES=volume")
	}
	return nil
}

// startError is the error of a container that does not start.
func startError(e *engine, k *kept, err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, errAttach):
		return e.explain(err)
	case strings.Contains(text, "ipv6"):
		return fmt.Errorf("%w: %w", errNoIPv6, err)
	case strings.Contains(text, guestPath), strings.Contains(text, settingsPrefix):
		return fmt.Errorf("%w: %w", errStartFailed, err)
	case strings.Contains(text, "unknown or invalid runtime") || strings.Contains(text, "runtime") && strings.Contains(text, "not found"):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "start container: %w", err), "tell the engine of that runtime, or leave it out")
	}
	return sandbox.WithHint(fmt.Errorf("start container: %w", e.explain(err)), "see that a plain container of that image starts: %s run --rm --network none %s true", e.name, k.Spec.Image)
}
