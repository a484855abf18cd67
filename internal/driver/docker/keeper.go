package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// If the engine does not have this machine's directories, workspaces are in a
// volume of the engine, one for each state directory. The keeper is a container
// that mounts this volume. Its guest serves the files to callers outside of
// sandboxes. It runs no user code. Each process makes its own keeper at the first
// use, and the keeper ends with the process.

var _ driver.WorkspaceKeeper = (*Driver)(nil)

// Values of Options.Workspaces.
const (
	WorkspacesDirectory = "directory"
	WorkspacesVolume    = "volume"
)

const (
	// keeperDir is the mount point of the workspace volume in the keeper.
	keeperDir = "/.glovebox-workspaces"
	// keeperImage is an empty image.
	keeperImage = "localhost/glovebox/nothing:1"
	roleKeeper  = "workspaces"
	// workspacesPrefix begins the names of workspace volumes.
	workspacesPrefix = volumePrefix + "workspaces-"

	keeperMemory = 512 << 20
	keeperLimits = 64 // processes and threads
)

// KeepsWorkspaces implements [driver.WorkspaceKeeper].
func (d *Driver) KeepsWorkspaces() (string, bool) {
	switch d.opts.Workspaces {
	case WorkspacesVolume:
		return keeperDir, true
	case WorkspacesDirectory:
		return "", false
	}
	if d.opts.Outside != "" {
		return "", false // the operator configured where the engine has them
	}
	places, err := endpoints(&d.opts)
	if err != nil || len(places) != 1 {
		return "", false // Probe reports this error
	}
	scheme, _, _ := strings.Cut(places[0].host, "://")
	return keeperDir, slices.Contains([]string{"tcp", "http", "https"}, scheme)
}

// workspacesVolume returns the name of this state directory's workspace volume.
func (d *Driver) workspacesVolume() (string, error) {
	id, err := d.stateID()
	return workspacesPrefix + id, err
}

// workspacesAt returns the engine's path of the workspace volume. It makes the
// volume if there is none.
func (d *Driver) workspacesAt(ctx context.Context, e *engine) (string, error) {
	name, err := d.workspacesVolume()
	if err != nil {
		return "", err
	}
	v, err := e.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) {
		if _, err := e.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: map[string]string{labelRole: roleKeeper}}); err != nil {
			return "", e.explain(err)
		}
		v, err = e.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	}
	if err != nil {
		return "", e.explain(err)
	}
	return v.Volume.Mountpoint, nil
}

// mountedFrom returns the engine's path of a workspace.
func (d *Driver) mountedFrom(ctx context.Context, e *engine, dir string) (string, error) {
	rest, kept := strings.CutPrefix(dir, keeperDir+"/")
	if !kept {
		return d.hostPath(dir), nil
	}
	at, err := d.workspacesAt(ctx, e)
	return at + "/" + rest, err
}

// DialWorkspaces implements [driver.WorkspaceKeeper].
func (d *Driver) DialWorkspaces(ctx context.Context) (net.Conn, error) {
	conn, err := d.dialKeeper(ctx)
	return conn, sandbox.Wrap(err, "dial workspaces", "")
}

func (d *Driver) dialKeeper(ctx context.Context) (net.Conn, error) {
	for again := false; ; again = true {
		k, err := d.keeping(ctx)
		if err != nil {
			return nil, err
		}
		conn, err := k.dial(ctx)
		if err == nil || again || ctx.Err() != nil {
			return conn, err
		}
		// The keeper ended: the engine was restarted, or the container was removed.
		d.keeperMu.Lock()
		if d.keeper == k {
			d.keeper = nil
		}
		d.keeperMu.Unlock()
		k.release()
		if err := k.e.remove(ctx, k.Ref()); err != nil {
			d.opts.Log.Warn("remove the container that kept workspaces", "error", err)
		}
	}
}

// keeping returns the keeper, and makes it if there is none.
func (d *Driver) keeping(ctx context.Context) (*box, error) {
	d.keeperMu.Lock()
	defer d.keeperMu.Unlock()
	if d.keeper != nil {
		return d.keeper, nil
	}
	e, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	k, err := d.makeKeeper(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("start the container that keeps workspaces: %w", err)
	}
	d.keeper = k
	return k, nil
}

// makeKeeper starts the keeper: a container configured like a box, with the
// workspace volume mounted.
func (d *Driver) makeKeeper(ctx context.Context, e *engine) (_ *box, err error) {
	image, err := e.nothing(ctx)
	if err != nil {
		return nil, err
	}
	name, err := d.workspacesVolume()
	if err != nil {
		return nil, err
	}
	if _, err := d.workspacesAt(ctx, e); err != nil {
		return nil, err
	}
	k := &kept{Disk: diskMemory, Keeper: name, Spec: driver.Spec{
		ID: sandbox.NewID(), Image: keeperImage, Hostname: "workspaces", Network: sandbox.NetworkNone,
		Limits: sandbox.Limits{
			CPUs: 1, MemoryBytes: keeperMemory, Processes: keeperLimits, DiskBytes: sandbox.MinDiskBytes,
		},
		// Limits may be unenforced, because the keeper runs no user code.
		AllowUnenforced: []sandbox.ControlName{sandbox.ControlCPU, sandbox.ControlMemory, sandbox.ControlProcesses},
	}}
	b, err := d.createOnce(ctx, e, k, image, false)
	if errors.Is(err, errStartFailed) {
		k.Spec.ID = sandbox.NewID()
		b, err = d.createOnce(ctx, e, k, image, true)
	}
	return b, err
}

// nothing returns an empty image, and makes it if there is none.
func (e *engine) nothing(ctx context.Context) (*runnerImage, error) {
	in, err := e.ImageInspect(ctx, keeperImage)
	if errdefs.IsNotFound(err) {
		pr, pw := io.Pipe()
		defer pr.Close()
		go func() { pw.CloseWithError(packNothing(pw)) }()
		resp, ierr := e.ImageImport(ctx, client.ImageImportSource{Source: pr, SourceName: "-"}, keeperImage, client.ImageImportOptions{})
		if ierr != nil {
			return nil, e.explain(ierr)
		}
		if _, err := io.Copy(io.Discard, resp); err != nil {
			return nil, errors.Join(e.explain(err), resp.Close())
		}
		resp.Close()
		in, err = e.ImageInspect(ctx, keeperImage)
	}
	if err != nil {
		return nil, e.explain(err)
	}
	return &runnerImage{id: in.ID}, nil
}

// packNothing writes an archive with only the directories that mounts need.
func packNothing(to io.Writer) error {
	w := tar.NewWriter(to)
	for _, dir := range []string{guestDir, keeperDir, "/etc", "/proc", "/sys", "/dev", "/run", "/tmp"} {
		h := tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
	}
	return w.Close()
}

// keep changes the order for a box into an order for a keeper.
func keep(order *client.ContainerCreateOptions, volume string) {
	order.Config.Cmd = append(order.Config.Cmd, "--workspaces", keeperDir)
	delete(order.Config.Labels, labelSandbox) // it is no box, so List must not return it
	order.Config.Labels[labelRole] = roleKeeper
	order.HostConfig.AutoRemove = true
	// The configured runtime confines untrusted code, and the keeper runs none. The
	// keeper also relies on a kernel that refuses symbolic links on request, and
	// the sentry of runsc follows them.
	order.HostConfig.Runtime = ""
	order.HostConfig.Mounts = append(order.HostConfig.Mounts, mount.Mount{
		Type: mount.TypeVolume, Source: volume, Target: keeperDir, VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	})
}

// isKept reports whether a workspace is in the workspace volume.
func isKept(dir string) bool {
	return strings.HasPrefix(dir, keeperDir+"/") && path.Clean(dir) == dir && path.Dir(dir) == keeperDir
}
