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

// Workspaces on an engine that does not have this machine's directories are in a
// volume, one for each state directory. A container has it mounted whose guest
// serves the files, for whoever is not in a sandbox: the keeper. It runs nobody's
// programs. Each process has a keeper of its own, from the first use on, which
// ends with it.

var _ driver.WorkspaceKeeper = (*Driver)(nil)

// How workspaces are kept: see Options.Workspaces.
const (
	WorkspacesDirectory = "directory"
	WorkspacesVolume    = "volume"
)

const (
	// keeperDir is where the keeper has the volume with the workspaces.
	keeperDir = "/.glovebox-workspaces"
	// keeperImage has nothing in it.
	keeperImage = "localhost/glovebox/nothing:1"
	roleKeeper  = "workspaces"
	// workspacesPrefix begins the names of volumes with workspaces.
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
		return "", false // somebody says where the engine has them
	}
	places, err := endpoints(&d.opts)
	if err != nil || len(places) != 1 {
		return "", false // Probe says what is wrong
	}
	scheme, _, _ := strings.Cut(places[0].host, "://")
	return keeperDir, slices.Contains([]string{"tcp", "http", "https"}, scheme)
}

// workspacesVolume names the volume that has this state directory's workspaces.
func (d *Driver) workspacesVolume() (string, error) {
	id, err := d.stateID()
	return workspacesPrefix + id, err
}

// workspacesAt returns where the engine has the volume, which is made if it is
// not there.
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

// mountedFrom returns where the engine has a workspace.
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
		// It ended: the engine was restarted, or somebody removed it.
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

// keeping returns the keeper, which is made if there is none.
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

// makeKeeper starts a container like a box, which has the volume with the
// workspaces and is none.
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
		// It runs nothing that could use more than it may.
		AllowUnenforced: []sandbox.ControlName{sandbox.ControlCPU, sandbox.ControlMemory, sandbox.ControlProcesses},
	}}
	b, err := d.createOnce(ctx, e, k, image, false)
	if errors.Is(err, errStartFailed) {
		k.Spec.ID = sandbox.NewID()
		b, err = d.createOnce(ctx, e, k, image, true)
	}
	return b, err
}

// nothing returns an image with nothing in it, which is made if it is not there.
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

// packNothing writes an archive with the directories that mounts need.
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

// keep makes the order for a box one for a keeper.
func keep(order *client.ContainerCreateOptions, volume string) {
	order.Config.Cmd = append(order.Config.Cmd, "--workspaces", keeperDir)
	delete(order.Config.Labels, labelSandbox) // it is none, and List is not to say so
	order.Config.Labels[labelRole] = roleKeeper
	order.HostConfig.AutoRemove = true
	// The runtime is for code that nobody trusts. The keeper runs none, and relies
	// on a kernel that follows no link where it was told not to; runsc's does.
	order.HostConfig.Runtime = ""
	order.HostConfig.Mounts = append(order.HostConfig.Mounts, mount.Mount{
		Type: mount.TypeVolume, Source: volume, Target: keeperDir, VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	})
}

// isKept reports whether a workspace is in the volume.
func isKept(dir string) bool {
	return strings.HasPrefix(dir, keeperDir+"/") && path.Clean(dir) == dir && path.Dir(dir) == keeperDir
}
