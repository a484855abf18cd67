// Package snapshots keeps the files of boxes with a container engine, as images.
//
// Only package docker imports it. A [Keeper] keeps those of one state directory. The image
// of a snapshot has an archive of the files. No container runs it, so it can be removed at
// any time.
package snapshots

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	api "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/container/filearchive"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// repository is the repository of the images.
const repository = "localhost/glovebox-snapshot"

func nameOf(id string) string { return repository + ":" + id }

// importTime bounds the making of an image.
const importTime = 5 * time.Minute

// A Keeper keeps snapshots. Its methods are safe for concurrent use.
type Keeper struct {
	// Open returns the container engine.
	Open  func(ctx context.Context) (*dockerapi.Engine, error)
	State *container.StateDir
	Log   *slog.Logger
}

// Take keeps the files of the box of a record, whose container is c.
func (k *Keeper) Take(ctx context.Context, e *dockerapi.Engine, rec *container.Record, c *api.InspectResponse, id string, pack container.Packer) (_ driver.Snapshot, err error) {
	state, err := k.State.ID()
	if err != nil {
		return driver.Snapshot{}, err
	}
	name := nameOf(id)
	if _, err := e.ImageInspect(ctx, name); err == nil {
		return driver.Snapshot{}, sandbox.Errorf(sandbox.Conflict, "a snapshot of that name exists")
	} else if !errdefs.IsNotFound(err) {
		return driver.Snapshot{}, e.Explain(err)
	}
	files, err := k.pack(ctx, e, rec, c, pack)
	if err != nil {
		return driver.Snapshot{}, packError(err)
	}
	defer files.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, remove(ctx, e, state, id))
		}
	}()
	var bytes int64
	var packed error
	pr, pw := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		// Headers of the archive, and holes of files, come in addition to the disk's limit.
		limit := 2*rec.Spec.Limits.DiskBytes + 16<<20
		bytes, packed = filearchive.Write(pw, manifestOf(rec, c.Image), files, limit)
		// After an error the archive ends too early, but in good order: Podman makes an
		// image even of a request that breaks off, at a time that its client cannot know.
		_ = pw.Close() // always nil
	}()
	// If the caller leaves, reading the files fails. The engine answers when the image is
	// complete, or cannot be, and the image is removed then.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), importTime)
	defer cancel()
	err = e.ImageImportAs(call, name, pr, map[string]string{container.LabelState: state, container.LabelSnapshot: id})
	pr.Close()
	<-written
	if packed != nil && !errors.Is(packed, io.ErrClosedPipe) {
		err = packError(packed)
	}
	if err == nil {
		err = ctx.Err()
	}
	return driver.Snapshot{Bytes: bytes}, err
}

// packError explains the error of reading the files of a box. The guest ends the stream
// without a reason.
func packError(err error) error {
	if k := sandbox.KindOf(err); k != sandbox.Internal && k != sandbox.Unavailable || driver.IsGone(err) || sandbox.HintOf(err) != "" {
		return err
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "read the files of the sandbox: %w", err), "programs may have changed them meanwhile: try again")
}

// pack returns an archive of the files of a box.
func (k *Keeper) pack(ctx context.Context, e *dockerapi.Engine, rec *container.Record, c *api.InspectResponse, pack container.Packer) (io.ReadCloser, error) {
	image, err := e.ImageInspect(ctx, c.Image)
	if err != nil {
		return nil, e.Explain(err)
	}
	var volumes map[string]struct{}
	if image.Config != nil {
		volumes = image.Config.Volumes
	}
	plan, err := container.NewPlan(k.State, rec, container.Abilities{}, slices.Sorted(maps.Keys(volumes)))
	if err != nil {
		return nil, err
	}
	var changes []change
	if rec.Disk != container.DiskMemory {
		diff, err := e.ContainerDiff(ctx, rec.Spec.ID, client.ContainerDiffOptions{})
		if err != nil {
			// Podman 4 fails if a directory has the name of a file of the image.
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "list the changes of the sandbox's layer: %w", e.ExplainBox(err)),
				"if a directory has replaced a file of the image, move it elsewhere")
		}
		for _, d := range diff.Changes {
			changes = append(changes, change{path: d.Path, gone: d.Kind == api.ChangeDelete})
		}
	}
	order, err := packOrder(plan, changes)
	if err != nil {
		return nil, err
	}
	return pack(ctx, order)
}

// A Files is the files of a snapshot. The caller closes it.
type Files struct {
	*filearchive.Reader
	Manifest Manifest

	content io.Closer
	e       *dockerapi.Engine
	name    string // of the container
	log     *slog.Logger
}

// Close frees the container from which the files are read. A failure is only logged: a
// box that has its files is complete.
func (f *Files) Close() {
	if err := errors.Join(f.content.Close(), f.e.Remove(context.Background(), f.name)); err != nil {
		f.log.Warn("remove the container with the files of a snapshot", "container", f.name, "error", err)
	}
}

// OpenFiles returns the files of a snapshot. It reads them from a container that never
// runs. The error is of kind NotFound if there is no such snapshot.
func (k *Keeper) OpenFiles(ctx context.Context, e *dockerapi.Engine, id string) (*Files, error) {
	missing := sandbox.Errorf(sandbox.NotFound, "there is no snapshot %q", id)
	state, err := k.State.ID()
	if err != nil {
		return nil, err
	}
	in, err := e.ImageInspect(ctx, nameOf(id))
	switch {
	case errdefs.IsNotFound(err):
		return nil, missing
	case err != nil:
		return nil, e.Explain(err)
	case in.Config == nil || in.Config.Labels[container.LabelState] != state || in.Config.Labels[container.LabelSnapshot] != id:
		return nil, missing // it is of another state directory
	}
	call, cancel := dockerapi.Steady(ctx)
	defer cancel()
	f := &Files{e: e, log: k.Log, name: container.VolumePrefix + "look-" + strings.ToLower(rand.Text())}
	_, err = e.ContainerCreate(call, client.ContainerCreateOptions{
		Name:       f.name,
		Config:     &api.Config{Image: in.ID, Entrypoint: []string{container.GuestPath}, Labels: map[string]string{container.LabelRole: container.RoleFiller}},
		HostConfig: &api.HostConfig{NetworkMode: "none"},
	})
	if errdefs.IsNotFound(err) {
		return nil, missing // it was removed meanwhile
	}
	if err != nil {
		return nil, e.Explain(err)
	}
	got, err := e.CopyFromContainer(ctx, f.name, client.CopyFromContainerOptions{SourcePath: filearchive.Dir})
	if err != nil {
		return nil, errors.Join(e.Explain(err), e.Remove(ctx, f.name))
	}
	f.content = got.Content
	if f.Reader, err = filearchive.Read(got.Content, &f.Manifest); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// images returns the images of snapshots of a state directory, by snapshot.
func images(ctx context.Context, e *dockerapi.Engine, state string) (map[string][]string, error) {
	list, err := e.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("label", container.LabelState+"="+state)})
	if err != nil {
		return nil, e.Explain(err)
	}
	images := map[string][]string{}
	for _, i := range list.Items {
		if id := i.Labels[container.LabelSnapshot]; i.Labels[container.LabelState] == state && sandbox.ValidID(id) {
			images[id] = append(images[id], i.ID)
		}
	}
	return images, nil
}

// find returns the container engine and the identity of the state directory.
func (k *Keeper) find(ctx context.Context) (*dockerapi.Engine, string, error) {
	e, err := k.Open(ctx)
	if err != nil {
		return nil, "", err
	}
	state, err := k.State.ID()
	return e, state, err
}

// Snapshots implements [driver.SnapshotKeeper].
func (k *Keeper) Snapshots(ctx context.Context) ([]string, error) {
	e, state, err := k.find(ctx)
	var found map[string][]string
	if err == nil {
		found, err = images(ctx, e, state)
	}
	return slices.Sorted(maps.Keys(found)), sandbox.Wrap(err, "list snapshots", "")
}

// RemoveSnapshot implements [driver.SnapshotKeeper].
func (k *Keeper) RemoveSnapshot(ctx context.Context, id string) error {
	e, state, err := k.find(ctx)
	if err == nil {
		err = remove(ctx, e, state, id)
	}
	return sandbox.Wrap(err, "remove snapshot", id)
}

func remove(ctx context.Context, e *dockerapi.Engine, state, id string) error {
	ctx, cancel := dockerapi.Steady(ctx)
	defer cancel()
	found, err := images(ctx, e, state)
	if err != nil {
		return err
	}
	for _, image := range found[id] {
		if err := e.RemoveImage(ctx, image); err != nil {
			return err
		}
	}
	return nil
}
