package docker

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.ImageKeeper = (*Driver)(nil)

// A runnerImage holds the facts about an image that a box needs.
type runnerImage struct {
	id      string
	volumes map[string]struct{} // the volumes that the image declares
}

var (
	imageID  = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)
	shortID  = regexp.MustCompile(`^[0-9a-f]{12,63}$`)
	errNoRef = "write it like python:3.12-slim or ghcr.io/owner/name@sha256:…"
)

// image returns the image that ref names. It pulls a missing image if its registry
// is allowed for every user.
func (d *Driver) image(ctx context.Context, e *engine, ref string) (*runnerImage, error) {
	found, err := d.find(ctx, e, driver.ImagePull{Ref: ref}, true)
	if err != nil {
		return nil, err
	}
	r := &runnerImage{id: found.ID}
	if found.Config != nil {
		r.volumes = found.Config.Volumes
	}
	return r, nil
}

// find returns the engine's description of an image. If pull is set, it pulls a
// missing image.
func (d *Driver) find(ctx context.Context, e *engine, order driver.ImagePull, pull bool) (*client.ImageInspectResult, error) {
	ref := order.Ref
	name, digest, err := imageName(ref)
	if err != nil {
		return nil, err
	}
	in, err := e.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) && pull && !imageID.MatchString(name) && !shortID.MatchString(name) {
		if err := d.pull(ctx, e, name, order); err != nil {
			return nil, err
		}
		in, err = e.ImageInspect(ctx, name)
	}
	switch {
	case errdefs.IsNotFound(err):
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image %s is not here", ref), "fetch it: glovebox images pull %s", ref)
	case err != nil:
		return nil, e.explain(err)
	}
	pinned := func(d string) bool { return strings.HasSuffix(d, "@"+digest) }
	if digest != "" && !slices.ContainsFunc(in.RepoDigests, pinned) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "image %s: %s has another under that name, %q", ref, e.name, in.RepoDigests),
			"remove it, and pull it again")
	}
	return &in, nil
}

// imageName returns the full name that ref stands for, and the digest that ref
// pins, if any.
func imageName(ref string) (name, digest string, err error) {
	switch {
	case ref == sandbox.ImageHost:
		return "", "", sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "image %q: a container has no part of this machine", ref),
			"name an image, like python:3.12-slim")
	case imageID.MatchString(ref), shortID.MatchString(ref):
		return ref, "", nil
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "image %q: %w", ref, err), "%s", errNoRef)
	}
	if d, ok := named.(reference.Digested); ok {
		digest = d.Digest().String()
	}
	return reference.FamiliarString(reference.TagNameOnly(named)), digest, nil
}

// shortName returns the name of an image in the form that users write, because
// Podman reports full names. It is empty for an image that lost its name.
func shortName(tag string) string {
	if tag == "<none>:<none>" {
		return ""
	}
	if name, _, err := imageName(tag); err == nil {
		return name
	}
	return tag
}

// A pull is the running pull of one image, shared by all callers that wait
// for it.
type pull struct {
	done   chan struct{}
	cancel context.CancelFunc
	err    error // set before done is closed

	mu      sync.Mutex
	waiting int
	tell    []func(sandbox.ImageProgress)
}

// pull has the engine pull an image. Callers that request the same image share one
// pull. The pull is cancelled when no caller waits any more.
func (d *Driver) pull(ctx context.Context, e *engine, name string, order driver.ImagePull) error {
	if err := d.allowedFrom(ctx, name, order.Anywhere); err != nil {
		return err
	}
	d.mu.Lock()
	p := d.pulls[name]
	if p == nil {
		work, cancel := context.WithCancel(context.WithoutCancel(ctx))
		p = &pull{done: make(chan struct{}), cancel: cancel}
		d.pulls[name] = p
		go func() {
			defer cancel()
			p.err = e.pullNow(work, name, p.progress)
			d.mu.Lock()
			if d.pulls[name] == p {
				delete(d.pulls, name)
			}
			d.mu.Unlock()
			close(p.done)
		}()
	}
	p.mu.Lock()
	p.waiting++
	if order.Progress != nil {
		p.tell = append(p.tell, order.Progress)
	}
	p.mu.Unlock()
	d.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		// With d.mu held, so that no caller joins a pull that is cancelled.
		d.mu.Lock()
		defer d.mu.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.waiting--; p.waiting == 0 {
			p.cancel()
			if d.pulls[name] == p {
				delete(d.pulls, name)
			}
		}
		return ctx.Err()
	}
}

func (p *pull) progress(now sandbox.ImageProgress) {
	p.mu.Lock()
	tell := slices.Clone(p.tell)
	p.mu.Unlock()
	for _, f := range tell {
		f(now)
	}
}

func (e *engine) pullNow(ctx context.Context, name string, progress func(sandbox.ImageProgress)) error {
	progress(sandbox.ImageProgress{Step: "resolve"})
	auth, err := e.registryAuth(name)
	if err != nil {
		return err
	}
	resp, err := e.ImagePull(ctx, name, client.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return e.explainPull(name, err)
	}
	defer resp.Close()
	var sum layers
	for m, err := range resp.JSONMessages(ctx) {
		if err == nil && m.Error != nil {
			err = m.Error
		}
		if err != nil {
			return e.explainPull(name, err)
		}
		progress(sum.add(&m))
	}
	return nil
}

// layers adds up the progress that an engine reports for each layer of a pull.
type layers struct {
	done, total map[string]int64
}

// maxLayers is more than any image has.
const maxLayers = 1024

func (l *layers) add(m *jsonstream.Message) sandbox.ImageProgress {
	if l.done == nil {
		l.done, l.total = map[string]int64{}, map[string]int64{}
	}
	if m.Status == "Downloading" && m.Progress != nil && m.Progress.Total > 0 && len(l.total) < maxLayers {
		l.done[m.ID], l.total[m.ID] = m.Progress.Current, m.Progress.Total
	}
	now := sandbox.ImageProgress{Step: "fetch"}
	if m.Status == "Download complete" {
		l.done[m.ID] = l.total[m.ID]
	}
	for id, total := range l.total {
		now.Done += l.done[id]
		now.Total += total
	}
	if m.Status == "Extracting" {
		now.Step = "unpack"
	}
	return now
}

// explainPull returns the error for an image that could not be pulled, with a hint.
func (e *engine) explainPull(name string, err error) error {
	text := err.Error()
	is := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(text, t) })
	}
	wrapped := func(kind sandbox.Kind, hint string, args ...any) error {
		return sandbox.WithHint(sandbox.Errorf(kind, "pull image %s: %w", name, err), hint, args...)
	}
	switch {
	case is("no matching manifest", "no image found in manifest list", "no image found in image index", "does not match the specified platform"):
		return wrapped(sandbox.NotFound, "there is none for %s; build it for that, or name another", e.info.Architecture)
	case is("toomanyrequests", "429 Too Many Requests"):
		return wrapped(sandbox.Exhausted, "wait, or log in with: %s login; known users may ask more often", e.name)
	case is("denied", "unauthorized", "authentication required", "no basic auth credentials"):
		return wrapped(sandbox.NotFound, "log in with: %s login; or check the name: registries say the same of what does not exist", e.name)
	case is("manifest verification failed", "filesystem layer verification failed"):
		return wrapped(sandbox.Unavailable, "the registry gives something else than the digest says: it is broken, or somebody tampers with the way to it")
	case is("manifest unknown", "name unknown", "repository name not known", "manifest for "):
		return wrapped(sandbox.NotFound, "check the name and the tag")
	case is("no space left on device"):
		return wrapped(sandbox.Exhausted, "make room: %s image prune", e.name)
	case is("context canceled", "context deadline exceeded"):
		return err
	case is("unexpected HTTP status"):
		return wrapped(sandbox.Unavailable, "the registry is in trouble: try again later")
	}
	return wrapped(sandbox.Unavailable, "the registry was not reached: if there is no way to it, bring the image with: docker save %s | glovebox images load -", name)
}

// PullImage implements [driver.ImageKeeper].
func (d *Driver) PullImage(ctx context.Context, order driver.ImagePull) (sandbox.Image, error) {
	e, err := d.connect(ctx)
	if err != nil {
		return sandbox.Image{}, err
	}
	if !order.Missing {
		name, _, err := imageName(order.Ref)
		if err != nil {
			return sandbox.Image{}, err
		}
		if err := d.pull(ctx, e, name, order); err != nil {
			return sandbox.Image{}, err
		}
	}
	in, err := d.find(ctx, e, order, order.Missing)
	if err != nil {
		return sandbox.Image{}, err
	}
	return imageOf(order.Ref, in), nil
}

// ImageName implements [driver.ImageKeeper].
func (d *Driver) ImageName(ref string) (string, error) {
	name, _, err := imageName(ref)
	return name, err
}

// Image implements [driver.ImageKeeper].
func (d *Driver) Image(ctx context.Context, ref string) (sandbox.Image, error) {
	e, err := d.connect(ctx)
	if err != nil {
		return sandbox.Image{}, err
	}
	in, err := d.find(ctx, e, driver.ImagePull{Ref: ref}, false)
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

// imageOf describes an image of the engine.
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
func (d *Driver) Images(ctx context.Context) ([]sandbox.Image, error) {
	e, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	list, err := e.ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return nil, sandbox.Wrap(e.explain(err), "list images", "")
	}
	var images []sandbox.Image
	for _, s := range list.Items {
		i := sandbox.Image{
			ID: s.ID, Platform: "linux/" + e.info.Architecture, SizeBytes: s.Size, Created: time.Unix(s.Created, 0).UTC(),
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
func (d *Driver) RemoveImage(ctx context.Context, ref string) (int64, error) {
	e, err := d.connect(ctx)
	if err != nil {
		return 0, err
	}
	in, err := d.find(ctx, e, driver.ImagePull{Ref: ref}, false)
	if err != nil {
		return 0, err
	}
	name, _, err := imageName(ref)
	if err != nil {
		return 0, err
	}
	if _, err := e.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true}); err != nil {
		return 0, sandbox.WithHint(sandbox.Wrap(e.explain(err), "remove image", ref), "stop the sandboxes and containers that have it")
	}
	if _, err := e.ImageInspect(ctx, in.ID); !errdefs.IsNotFound(err) {
		return 0, nil // the image has another name
	}
	// Remove the settings that boxes of this image shared.
	_, _ = e.VolumeRemove(ctx, settingsVolume(in.ID), client.VolumeRemoveOptions{})
	d.mu.Lock()
	delete(d.volumes, settingsVolume(in.ID))
	d.mu.Unlock()
	return in.Size, nil
}

// PruneImages implements [driver.ImageKeeper]. It removes the volumes of this
// driver that no box uses. Images stay, because the engine has other users as well.
func (d *Driver) PruneImages(ctx context.Context, unused time.Duration, all bool) ([]string, int64, error) {
	if all || unused > 0 {
		return nil, 0, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the engine's images are not glovebox's alone"),
			"remove those that you name: glovebox images rm IMAGE; or all that nothing uses: %s image prune -a", d.opts.Engine)
	}
	e, err := d.connect(ctx)
	if err != nil {
		return nil, 0, err
	}
	list, err := e.VolumeList(ctx, client.VolumeListOptions{Filters: make(client.Filters).Add("name", volumePrefix)})
	if err != nil {
		return nil, 0, sandbox.Wrap(e.explain(err), "list volumes", "")
	}
	var names []string
	for _, v := range list.Items {
		if !strings.HasPrefix(v.Name, volumePrefix) || strings.HasPrefix(v.Name, workspacesPrefix) {
			continue
		}
		// The engine does not remove a volume in use.
		if _, err := e.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{}); err == nil {
			names = append(names, "volume "+v.Name)
			d.mu.Lock()
			delete(d.volumes, v.Name)
			d.mu.Unlock()
		}
	}
	return names, 0, nil
}
