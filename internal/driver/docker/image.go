package docker

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// images are the images of the container engine. Their methods are safe for
// concurrent use.
type images struct {
	conn    *connection
	volumes *volumes
	pulls   *pulls
}

var _ driver.ImageKeeper = (*images)(nil)

// A runnerImage holds the facts about an image that a box needs.
type runnerImage struct {
	id      string
	volumes map[string]struct{} // the volumes that the image declares
}

// image returns the image that ref names. It pulls a missing image if its registry
// is allowed for every user.
func (im *images) image(ctx context.Context, e *dockerapi.Engine, ref string) (*runnerImage, error) {
	found, err := im.find(ctx, e, driver.ImagePull{Ref: ref}, true)
	if err != nil {
		return nil, err
	}
	r := &runnerImage{id: found.ID}
	if found.Config != nil {
		r.volumes = found.Config.Volumes
	}
	return r, nil
}

// find returns the container engine's description of an image. If pull is set, it
// pulls a missing image.
func (im *images) find(ctx context.Context, e *dockerapi.Engine, order driver.ImagePull, pull bool) (*client.ImageInspectResult, error) {
	ref := order.Ref
	name, digest, err := imageName(ref)
	if err != nil {
		return nil, err
	}
	in, err := e.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) && pull && !imageID.MatchString(name) && !shortID.MatchString(name) {
		if err := im.pulls.pull(ctx, e, name, order); err != nil {
			return nil, err
		}
		in, err = e.ImageInspect(ctx, name)
	}
	switch {
	case errdefs.IsNotFound(err):
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image %s is not here", ref), "fetch it: glovebox images pull %s", ref)
	case err != nil:
		return nil, e.Explain(err)
	}
	if in.Config != nil && in.Config.Labels[container.LabelSnapshot] != "" {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image %s has the files of a snapshot, and is not for sandboxes", ref), "name the snapshot instead")
	}
	pinned := func(d string) bool { return strings.HasSuffix(d, "@"+digest) }
	if digest != "" && !slices.ContainsFunc(in.RepoDigests, pinned) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "image %s: %s has another under that name, %q", ref, e.Name, in.RepoDigests),
			"remove it, and pull it again")
	}
	return &in, nil
}

// PullImage implements [driver.ImageKeeper].
func (im *images) PullImage(ctx context.Context, order driver.ImagePull) (sandbox.Image, error) {
	e, err := im.conn.open(ctx)
	if err != nil {
		return sandbox.Image{}, err
	}
	if !order.Missing {
		name, _, err := imageName(order.Ref)
		if err != nil {
			return sandbox.Image{}, err
		}
		if err := im.pulls.pull(ctx, e, name, order); err != nil {
			return sandbox.Image{}, err
		}
	}
	in, err := im.find(ctx, e, order, order.Missing)
	if err != nil {
		return sandbox.Image{}, err
	}
	return imageOf(order.Ref, in), nil
}

// ImageName implements [driver.ImageKeeper].
func (im *images) ImageName(ref string) (string, error) {
	name, _, err := imageName(ref)
	return name, err
}

// Image implements [driver.ImageKeeper].
func (im *images) Image(ctx context.Context, ref string) (sandbox.Image, error) {
	e, err := im.conn.open(ctx)
	if err != nil {
		return sandbox.Image{}, err
	}
	in, err := im.find(ctx, e, driver.ImagePull{Ref: ref}, false)
	if err != nil {
		return sandbox.Image{}, err
	}
	return imageOf(ref, in), nil
}

// isLocal reports whether an image did not come from a registry. Podman gives local
// images digests, too, and the registry name localhost.
func isLocal(name string, digests []string) bool {
	return len(digests) == 0 || strings.HasPrefix(name, "localhost/")
}

// imageOf describes an image of the container engine.
func imageOf(ref string, in *client.ImageInspectResult) sandbox.Image {
	i := sandbox.Image{ID: in.ID, Platform: in.Os + "/" + in.Architecture, SizeBytes: in.Size, Local: isLocal(ref, in.RepoDigests)}
	name, _, _ := imageName(ref)
	i.Name = name
	tags := make([]string, len(in.RepoTags))
	for i, tag := range in.RepoTags {
		tags[i] = shortName(tag)
	}
	if len(tags) > 0 && !slices.Contains(tags, name) {
		i.Name = tags[0]
	}
	if in.Variant != "" {
		i.Platform += "/" + in.Variant
	}
	if len(in.RepoDigests) > 0 {
		_, i.Digest, _ = strings.Cut(in.RepoDigests[0], "@")
	}
	i.Created, _ = time.Parse(time.RFC3339Nano, in.Created) // zero where it is not known
	if c := in.Config; c != nil {
		i.Config = sandbox.ImageConfig{
			Env: c.Env, User: c.User, WorkDir: c.WorkingDir, Entrypoint: c.Entrypoint, Cmd: c.Cmd, Labels: c.Labels,
		}
		for port := range c.ExposedPorts {
			i.Config.Ports = append(i.Config.Ports, port)
		}
		slices.Sort(i.Config.Ports)
	}
	return i
}

// Images implements [driver.ImageKeeper].
func (im *images) Images(ctx context.Context) ([]sandbox.Image, error) {
	e, err := im.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	list, err := e.ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return nil, sandbox.Wrap(e.Explain(err), "list images", "")
	}
	var images []sandbox.Image
	for _, s := range list.Items {
		if s.Labels[container.LabelSnapshot] != "" {
			continue // it has files of a user
		}
		i := sandbox.Image{
			ID: s.ID, Platform: "linux/" + e.Facts.Architecture, SizeBytes: s.Size, Created: time.Unix(s.Created, 0).UTC(),
			Config: sandbox.ImageConfig{Labels: s.Labels},
		}
		if len(s.RepoDigests) > 0 {
			_, i.Digest, _ = strings.Cut(s.RepoDigests[0], "@")
		}
		for _, tag := range s.RepoTags {
			i.Name = shortName(tag)
			i.Local = isLocal(i.Name, s.RepoDigests)
			images = append(images, i)
		}
		if len(s.RepoTags) == 0 {
			images = append(images, i)
		}
	}
	slices.SortStableFunc(images, func(a, b sandbox.Image) int { return cmp.Compare(a.Name, b.Name) })
	return images, nil
}

// RemoveImage implements [driver.ImageKeeper].
func (im *images) RemoveImage(ctx context.Context, ref string) (int64, error) {
	e, err := im.conn.open(ctx)
	if err != nil {
		return 0, err
	}
	in, err := im.find(ctx, e, driver.ImagePull{Ref: ref}, false)
	if err != nil {
		return 0, err
	}
	name, _, err := imageName(ref)
	if err != nil {
		return 0, err
	}
	if _, err := e.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true}); err != nil {
		return 0, sandbox.WithHint(sandbox.Wrap(e.Explain(err), "remove image", ref), "stop the sandboxes and containers that have it")
	}
	if _, err := e.ImageInspect(ctx, in.ID); !errdefs.IsNotFound(err) {
		return 0, nil // the image has another name
	}
	// Remove the settings that boxes of this image shared.
	_, _ = e.VolumeRemove(ctx, container.SettingsVolume(in.ID), client.VolumeRemoveOptions{})
	im.volumes.forget(container.SettingsVolume(in.ID))
	return in.Size, nil
}

// PruneImages implements [driver.ImageKeeper]. It removes the volumes of this driver
// that no box uses. Images stay, because the container engine has other users as
// well.
func (im *images) PruneImages(ctx context.Context, unused time.Duration, all bool) ([]string, int64, error) {
	if all || unused > 0 {
		return nil, 0, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the engine's images are not glovebox's alone"),
			"remove those that you name: glovebox images rm IMAGE; or all that nothing uses: %s image prune -a", im.conn.find.Name)
	}
	e, err := im.conn.open(ctx)
	if err != nil {
		return nil, 0, err
	}
	list, err := e.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("name", container.VolumePrefix)})
	if err != nil {
		return nil, 0, sandbox.Wrap(e.Explain(err), "list volumes", "")
	}
	var names []string
	for _, v := range list.Items {
		if !container.IsShared(v.Name) {
			continue
		}
		// The container engine does not remove a volume in use.
		if _, err := e.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{}); err == nil {
			names = append(names, "volume "+v.Name)
			im.volumes.forget(v.Name)
		}
	}
	return names, 0, nil
}
