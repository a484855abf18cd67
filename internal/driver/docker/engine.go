package docker

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An engine is a container engine that answers, with the facts that it reports
// about itself.
type engine struct {
	*client.Client
	at   endpoint
	name string // Docker or Podman, as configured
	info system.Info
	// configDir is the directory where docker login leaves credentials for
	// registries.
	configDir string

	// noQuota means that the engine cannot bound a container's layer, although its
	// storage suggested it; guarded by the driver's mu.
	noQuota bool
	// noIPv6 means that the engine's machine has no IPv6; guarded by the driver's
	// mu.
	noIPv6 bool
}

// findTime bounds how long one endpoint may take to answer.
const findTime = 10 * time.Second

// findEngine returns the first engine that answers.
func findEngine(ctx context.Context, opts *Options) (*engine, error) {
	places, err := endpoints(opts)
	if err != nil {
		return nil, err
	}
	var first error
	for _, at := range places {
		e, err := open(ctx, opts.Engine, at)
		if err == nil {
			e.configDir = configDir(opts.Getenv)
			return e, nil
		}
		// The error of an engine that refuses says more than the error of a missing
		// socket.
		if first == nil || errors.Is(first, fs.ErrNotExist) && !errors.Is(err, fs.ErrNotExist) {
			first = err
		}
	}
	if first == nil {
		first = unavailable(sandbox.Errorf(sandbox.Unavailable, "there is no place to look for %s", opts.Engine), "set DOCKER_HOST")
	}
	return nil, first
}

// open returns the engine at an endpoint, if it answers.
func open(ctx context.Context, name string, at endpoint) (*engine, error) {
	c, err := at.dial()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	info, err := c.Info(ctx, client.InfoOptions{})
	if err != nil {
		c.Close()
		return nil, at.explain(name, err)
	}
	e := &engine{Client: c, at: at, name: name, info: info.Info}
	if e.info.OSType != "" && e.info.OSType != "linux" {
		c.Close()
		return nil, unavailable(sandbox.Errorf(sandbox.Unsupported, "%s at %s runs %s containers", name, at.host, e.info.OSType),
			"switch it to Linux containers")
	}
	return e, nil
}

// unavailable wraps err in [driver.ErrUnavailable], with a hint.
func unavailable(err error, hint string, args ...any) error {
	return sandbox.WithHint(fmt.Errorf("%w: %w", driver.ErrUnavailable, err), hint, args...)
}

// explain returns the error for an engine that does not answer, with a hint.
func (at endpoint) explain(name string, err error) error {
	err = sandbox.Errorf(sandbox.Unavailable, "%s does not answer at %s (%s): %w", name, at.host, at.source, err)
	start := "start it: sudo systemctl start docker; or start Docker Desktop or Colima"
	rights := "add yourself to its group: sudo usermod -aG docker $USER, then log in again; that group is as good as root, so rootless Docker is the safer way"
	if name == Podman {
		start = "start its service: systemctl --user start podman.socket (for root: sudo systemctl start podman.socket)"
		rights = "use your own: systemctl --user start podman.socket, and leave CONTAINER_HOST unset"
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return unavailable(err, "%s", rights)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), refused(err):
		if at.named {
			return unavailable(err, "%s names it; change that, or %s", at.source, start)
		}
		return unavailable(err, "%s", start)
	}
	return unavailable(err, "see what it says: %s info", name)
}

// refused reports whether the client could not connect. Some of its errors say so
// only in their text.
func refused(err error) bool {
	return client.IsErrConnectionFailed(err) || strings.Contains(err.Error(), "connect to the ")
}

// explain gives an error of the engine its kind.
func (e *engine) explain(err error) error {
	if err == nil {
		return nil
	}
	var lost *url.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case refused(err), errors.As(err, &lost), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s does not answer at %s: %w", e.name, e.at.host, err),
			"see whether it runs; sandboxes go on when it does again, if it kept them")
	case strings.Contains(err.Error(), "unable to upgrade to tcp"):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s at %s: %w", e.name, e.at.host, err),
			"what stands between does not pass streams on, as HAProxy 2.4 to 3.0 do not where the request has a body: use another proxy, or the engine's own socket")
	case errdefs.IsPermissionDenied(err):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s at %s does not allow it: %w", e.name, e.at.host, err),
			"a proxy or a plugin of the engine forbids it: let pass what deploy/compose.yaml does")
	case errdefs.IsNotFound(err):
		return sandbox.Errorf(sandbox.NotFound, "%s: %w", e.name, err)
	case errdefs.IsConflict(err):
		return sandbox.Errorf(sandbox.Conflict, "%s: %w", e.name, err)
	case strings.Contains(err.Error(), "no space left on device"):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the disk of %s is full: %w", e.name, err),
			"make room: %s system df, %s image prune", e.name, e.name)
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s: %w", e.name, err)
}

// explainBox is explain for a call about a box. If the box does not run, the error
// wraps ErrGone.
func (e *engine) explainBox(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) && strings.Contains(text, "not running") ||
		strings.Contains(text, "is not running") || strings.Contains(text, "container state improper") {
		return fmt.Errorf("%w: %w", driver.ErrGone, err)
	}
	return e.explain(err)
}

// inspect returns the container of a box of this state directory. The error wraps
// ErrGone if there is none.
func (d *Driver) inspect(ctx context.Context, e *engine, ref string) (*container.InspectResponse, error) {
	if !sandbox.ValidID(ref) {
		return nil, driver.ErrGone
	}
	id, err := d.stateID()
	if err != nil {
		return nil, err
	}
	c, err := e.ContainerInspect(ctx, ref, client.ContainerInspectOptions{})
	if err != nil {
		return nil, e.explainBox(err)
	}
	if c.Container.Config == nil || c.Container.Config.Labels[labelState] != id || c.Container.Config.Labels[labelSandbox] != ref {
		return nil, driver.ErrGone // it belongs to another state directory
	}
	return &c.Container, nil
}

// remove removes a container and returns when nothing of it is left. Another
// process may remove it at the same time.
func (e *engine) remove(ctx context.Context, name string) error {
	ctx, cancel := steady(ctx)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		_, err := e.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err == nil {
			// Podman answers before the removal has ended if another call has begun
			// it.
			if _, err = e.ContainerInspect(ctx, name, client.ContainerInspectOptions{}); errdefs.IsNotFound(err) {
				return nil
			}
		} else if !errdefs.IsConflict(err) && !retried(err) {
			return e.explain(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Unavailable, "%s does not remove %s: %w", e.name, name, errors.Join(err, ctx.Err()))
		}
	}
}

// retried reports whether a removal failed for a temporary reason: a container that
// is just starting or ending still holds its files.
func retried(err error) bool {
	for _, text := range []string{"is already in progress", "device or resource busy", "did not receive an exit event", "could not be stopped", "cannot remove container"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// guestProgram opens the guest's program, if it can run on this engine. The caller
// closes the file.
func (e *engine) guestProgram(path string) (*os.File, error) {
	const hint = "use a released program of glovebox, or build one with: make build"
	f, err := os.Open(path)
	if err != nil {
		return nil, unavailable(sandbox.Errorf(sandbox.Unavailable, "open the guest's program: %w", err), hint)
	}
	bin, err := elf.NewFile(f)
	if err != nil {
		f.Close()
		return nil, unavailable(sandbox.Errorf(sandbox.Unsupported, "this program of glovebox carries no guest, and cannot be one itself: it is not for Linux"), hint)
	}
	machine := map[string]elf.Machine{
		"x86_64": elf.EM_X86_64, "amd64": elf.EM_X86_64,
		"aarch64": elf.EM_AARCH64, "arm64": elf.EM_AARCH64,
	}[e.info.Architecture]
	if machine != bin.Machine && machine != 0 {
		f.Close()
		return nil, unavailable(sandbox.Errorf(sandbox.Unsupported, "%s runs on %s, and this program's guest is for %s", e.name, e.info.Architecture, bin.Machine),
			"use a program of glovebox for %s", e.info.Architecture)
	}
	for _, p := range bin.Progs {
		if p.Type == elf.PT_INTERP {
			f.Close()
			return nil, unavailable(sandbox.Errorf(sandbox.Unsupported, "the guest's program %s is not static", path), "build it with CGO_ENABLED=0")
		}
	}
	return f, nil
}

// quotas reports whether the engine may be able to bound a container's layer. Only
// the creation of the first box shows whether it can.
func (e *engine) quotas() bool {
	if e.info.Driver == "btrfs" || e.info.Driver == "zfs" {
		return true
	}
	for _, s := range e.info.DriverStatus {
		if s[0] == "Backing Filesystem" && strings.Contains(s[1], "xfs") {
			return true
		}
	}
	return false
}
