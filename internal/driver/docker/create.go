package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/container/lease"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/snapshots"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A launcher makes the containers of boxes. Its methods are safe for concurrent use.
type launcher struct {
	runtime         string        // see Options
	inside, outside string        // see Options
	network         bool          // boxes can have a network
	hold            time.Duration // see Options
	log             *slog.Logger

	conn      *connection
	state     *container.StateDir
	boxes     *container.Boxes
	volumes   *volumes
	snapshots *snapshots.Keeper

	mu      sync.Mutex
	noQuota bool // the container engine cannot bound a container's layer, although its storage suggested it; guarded by mu
	noIPv6  bool // the container engine's machine has no IPv6; guarded by mu
}

var (
	// errNoQuota means that the container engine cannot bound a container's layer.
	errNoQuota = errors.New("the engine has no quota for a container's layer")
	// errNoIPv6 means that the container engine's machine has no IPv6.
	errNoIPv6 = errors.New("there is no IPv6")
)

// create makes a box. It tries again if the container engine cannot do everything
// that it seemed to be able to do, or if the guest's volume was emptied.
func (l *launcher) create(ctx context.Context, e *dockerapi.Engine, spec *driver.Spec, image *runnerImage) (*container.Box, error) {
	rec := &container.Record{Spec: *spec, Disk: l.diskMode(e, spec), Lease: lease.NewGrant(spec, l.hold)}
	var err error
	if rec.Spec.Writable, err = l.volumes.missing(ctx, e, image.id, spec.Writable); err != nil {
		return nil, err
	}
	b, err := l.createOnce(ctx, e, rec, image, false)
	switch {
	case errors.Is(err, errNoQuota):
		l.mu.Lock()
		l.noQuota = true
		l.mu.Unlock()
		rec.Disk = l.diskMode(e, spec)
		b, err = l.createOnce(ctx, e, rec, image, false)
	case errors.Is(err, errNoIPv6):
		l.mu.Lock()
		l.noIPv6 = true
		l.mu.Unlock()
		b, err = l.createOnce(ctx, e, rec, image, false)
	case errors.Is(err, container.ErrStartFailed):
		l.log.Warn("the guest does not start; putting it into its volume again", "error", err)
		b, err = l.createOnce(ctx, e, rec, image, true)
	}
	return b, err
}

// check refuses a spec that the driver cannot fulfil, before anything is started.
func (l *launcher) check(e *dockerapi.Engine, spec *driver.Spec) error {
	if err := container.CheckSpec(spec); err != nil {
		return err
	}
	if spec.Network != sandbox.NetworkNone && !l.network {
		return sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "network %q: this driver has no network but %q here", spec.Network, sandbox.NetworkNone),
			"leave the network out, or run the server on Linux")
	}
	if name := l.abilities(e).Lacking(spec); name != "" {
		return cannot(e, name, "it says so itself")
	}
	return nil
}

// abilities returns the facts about the container engine that plans depend on.
func (l *launcher) abilities(e *dockerapi.Engine) container.Abilities {
	l.mu.Lock()
	defer l.mu.Unlock()
	return container.Abilities{
		CPU: e.Facts.CPUCfsQuota, Memory: e.Facts.MemoryLimit, Processes: e.Facts.PidsLimit, CPUs: e.Facts.NCPU, IPv6: !l.noIPv6,
	}
}

// diskMode returns how the container engine can bound the disk of a box, as far as
// is known.
func (l *launcher) diskMode(e *dockerapi.Engine, spec *driver.Spec) container.DiskMode {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case container.MayLack(spec, sandbox.ControlDisk):
		return container.DiskUnbounded
	case e.Quotas() && !l.noQuota:
		return container.DiskQuota
	}
	return container.DiskMemory
}

// createOnce makes a box, or a server of workspaces. If it fails, it leaves nothing.
func (l *launcher) createOnce(ctx context.Context, e *dockerapi.Engine, rec *container.Record, image *runnerImage, refill bool) (_ *container.Box, err error) {
	m := materials{image: image.id, runtime: l.runtime}
	if m.guest, err = l.volumes.guestVolume(ctx, e, image.id, refill); err != nil {
		return nil, err
	}
	if m.settings, err = l.volumes.settingsDir(ctx, e, image.id, refill); err != nil {
		return nil, err
	}
	plan, err := container.NewPlan(l.state, rec, l.abilities(e), slices.Sorted(maps.Keys(image.volumes)))
	if err != nil {
		return nil, err
	}
	for i := range plan.Mounts {
		if plan.Mounts[i].Dir, err = l.mountedFrom(ctx, e, plan.Mounts[i].Dir); err != nil {
			break
		}
	}
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	call, cancel := dockerapi.Steady(ctx)
	defer cancel()
	if _, err := e.ContainerCreate(call, orderOf(e, plan, m)); err != nil {
		return nil, createError(e, rec, err)
	}
	p := l.platform(e)
	b := l.boxes.Add(p, rec)
	defer func() {
		if err != nil {
			b.Release()
			err = errors.Join(err, p.Remove(ctx, rec.Spec.ID))
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	streams, err := e.StartAttached(call, rec.Spec.ID)
	if err != nil {
		return nil, startError(e, rec, err)
	}
	receipt, err := b.Begin(ctx, streams, l.tunnel(e, rec.Spec.ID, image.id, m.guest))
	if errors.Is(err, container.ErrForeignUsers) {
		return nil, sandbox.WithHint(err, "have the engine keep workspaces: GLOVEBOX_DOCKER_WORKSPACES=volume")
	}
	if err != nil {
		return nil, err
	}
	if rec.Workspaces != "" {
		return b, nil // it runs no user code, and its disk holds the workspaces
	}
	for _, name := range receipt.Unenforced() {
		if container.MayLack(&rec.Spec, name) {
			continue
		}
		c := receipt.Control(name)
		if name == sandbox.ControlDisk && rec.Disk == container.DiskQuota {
			return nil, fmt.Errorf("%w: %s", errNoQuota, c.Value)
		}
		return nil, cannot(e, name, fmt.Sprintf("asked for %s, found %q", c.Asked, c.Value))
	}
	return b, nil
}

// platform returns the container engine as its boxes use it.
func (l *launcher) platform(e *dockerapi.Engine) *platform {
	return &platform{e: e, conn: l.conn, state: l.state, snapshots: l.snapshots}
}

// tunnel returns the tunnel of a box. volume is the volume with the guest's program;
// if it is "", the tunnel finds it.
func (l *launcher) tunnel(e *dockerapi.Engine, ref, image, volume string) *tunnel {
	return &tunnel{e: e, ref: ref, image: image, can: l.abilities(e), guestVolume: func(ctx context.Context) (string, error) {
		if volume != "" {
			return volume, nil
		}
		return l.volumes.guestVolume(ctx, e, image, false)
	}}
}

// mountedFrom returns the container engine's path of a workspace.
func (l *launcher) mountedFrom(ctx context.Context, e *dockerapi.Engine, dir string) (string, error) {
	rest, inVolume := strings.CutPrefix(dir, container.WorkspacesDir+"/")
	if !inVolume {
		return container.HostPath(l.inside, l.outside, dir), nil
	}
	_, at, err := l.workspaceVolume(ctx, e)
	return at + "/" + rest, err
}

// workspaceVolume returns the name of the workspace volume and the container
// engine's path of it. It makes the volume if there is none.
func (l *launcher) workspaceVolume(ctx context.Context, e *dockerapi.Engine) (name, path string, err error) {
	if name, err = l.state.WorkspacesVolume(); err != nil {
		return "", "", err
	}
	path, err = e.VolumePath(ctx, name, map[string]string{container.LabelRole: container.RoleWorkspaces})
	return name, path, err
}

// cannot returns the error for a limit that the container engine cannot enforce.
func cannot(e *dockerapi.Engine, name sandbox.ControlName, why string) error {
	hint := "give the engine control groups it may write: version 2, with cpu, memory and pids delegated (systemd: Delegate=yes); or run it as root"
	if name == sandbox.ControlDisk {
		hint = "put the engine's storage on XFS mounted with pquota"
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "%s cannot enforce the limit of %s: %s", e.Name, name, why),
		"%s; or allow it by name: --allow-unenforced %s", hint, name)
}

// createError is the error of a container that the container engine does not make.
func createError(e *dockerapi.Engine, rec *container.Record, err error) error {
	text := err.Error()
	switch {
	case rec.Disk == container.DiskQuota && (strings.Contains(text, "storage-opt") || strings.Contains(text, "storage opt") || strings.Contains(text, "quota")):
		return fmt.Errorf("%w: %w", errNoQuota, err)
	case errdefs.IsConflict(err) || strings.Contains(text, "is already in use"):
		return sandbox.Errorf(sandbox.Conflict, "there is such a container: %w", err)
	case strings.Contains(text, container.SettingsPrefix):
		return fmt.Errorf("%w: %w", container.ErrStartFailed, err)
	case strings.Contains(text, "bind source path") || strings.Contains(text, "is not shared") || strings.Contains(text, `for type "bind"`):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the engine does not have the workspace: %w", err),
			"if this program is in a container, set SANDBOX_ROOT and SANDBOX_HOST_PATH; if the engine is on another machine, have it keep workspaces: GLOVEBOX_DOCKER_WORKSPACES=volume")
	case errdefs.IsNotFound(err):
		return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image %s was removed meanwhile: %w", rec.Spec.Image, err), "try again")
	}
	return e.Explain(err)
}

// startError is the error of a container that does not start.
func startError(e *dockerapi.Engine, rec *container.Record, err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, dockerapi.ErrAttach):
		return e.Explain(err)
	case strings.Contains(text, "ipv6"):
		return fmt.Errorf("%w: %w", errNoIPv6, err)
	case strings.Contains(text, container.GuestPath), strings.Contains(text, container.SettingsPrefix):
		return fmt.Errorf("%w: %w", container.ErrStartFailed, err)
	case strings.Contains(text, "unknown or invalid runtime") || strings.Contains(text, "runtime") && strings.Contains(text, "not found"):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "start container: %w", err), "tell the engine of that runtime, or leave it out")
	}
	return sandbox.WithHint(fmt.Errorf("start container: %w", e.Explain(err)), "see that a plain container of that image starts: %s run --rm --network none %s true", e.Name, rec.Spec.Image)
}
