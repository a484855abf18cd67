package docker

import (
	"context"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A runnerImage is an image that the engine has.
type runnerImage struct {
	id      string
	volumes map[string]struct{} // that it declares
	labels  map[string]string
}

var imageID = regexp.MustCompile(`^(sha256:)?[0-9a-f]{12,64}$`)

// image returns the image that ref names, pulled if it is not there.
func (d *Driver) image(ctx context.Context, e *engine, ref string) (*runnerImage, error) {
	name, err := imageName(ref)
	if err != nil {
		return nil, err
	}
	found, err := e.lookUp(ctx, name)
	if errdefs.IsNotFound(err) && !imageID.MatchString(name) {
		if err := d.pull(ctx, e, name, nil); err != nil {
			return nil, err
		}
		found, err = e.lookUp(ctx, name)
	}
	if errdefs.IsNotFound(err) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image %s is not here", ref), "list those that are: %s image ls", e.name)
	}
	if err != nil {
		return nil, e.explain(err)
	}
	return found, nil
}

// imageName returns the whole name that ref stands for.
func imageName(ref string) (string, error) {
	switch {
	case ref == sandbox.ImageHost:
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "image %q: a container has no part of this machine", ref),
			"name an image of a registry, like python:3.12-slim")
	case imageID.MatchString(ref):
		return ref, nil
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "image %q: %w", ref, err), "write it like python:3.12-slim or ghcr.io/owner/name@sha256:…")
	}
	return reference.FamiliarString(reference.TagNameOnly(named)), nil
}

func (e *engine) lookUp(ctx context.Context, name string) (*runnerImage, error) {
	in, err := e.ImageInspect(ctx, name)
	if err != nil {
		return nil, err
	}
	found := &runnerImage{id: in.ID, volumes: map[string]struct{}{}}
	if in.Config != nil {
		found.volumes, found.labels = in.Config.Volumes, in.Config.Labels
	}
	return found, nil
}

// A pull is one that is under way, for all who wait for it.
type pull struct {
	done chan struct{}
	err  error // set before done is closed
}

// pull has the engine pull an image; who asks for one that is being pulled
// waits with the others.
func (d *Driver) pull(ctx context.Context, e *engine, name string, _ func()) error {
	d.mu.Lock()
	p := d.pulls[name]
	if p == nil {
		p = &pull{done: make(chan struct{})}
		d.pulls[name] = p
		work := context.WithoutCancel(ctx)
		go func() {
			p.err = e.pullNow(work, name)
			d.mu.Lock()
			delete(d.pulls, name)
			d.mu.Unlock()
			close(p.done)
		}()
	}
	d.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *engine) pullNow(ctx context.Context, name string) error {
	resp, err := e.ImagePull(ctx, name, client.ImagePullOptions{})
	if err == nil {
		err = resp.Wait(ctx)
		resp.Close()
	}
	return e.explainPull(name, err)
}

// explainPull says why an image could not be pulled, and what to do.
func (e *engine) explainPull(name string, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	is := func(texts ...string) bool {
		for _, t := range texts {
			if strings.Contains(text, t) {
				return true
			}
		}
		return false
	}
	wrapped := func(kind sandbox.Kind, hint string, args ...any) error {
		return sandbox.WithHint(sandbox.Errorf(kind, "pull image %s: %w", name, err), hint, args...)
	}
	switch {
	case is("no matching manifest", "no image found in manifest list", "no image found in image index"):
		return wrapped(sandbox.NotFound, "there is none for %s; build it for that, or name another", e.info.Architecture)
	case is("denied", "unauthorized", "authentication required"):
		return wrapped(sandbox.NotFound, "log in with: %s login; or check the name: registries say the same of what does not exist", e.name)
	case is("manifest unknown", "not found", "name unknown"):
		return wrapped(sandbox.NotFound, "check the name and the tag")
	case is("no space left on device"):
		return wrapped(sandbox.Exhausted, "make room: %s image prune", e.name)
	}
	return wrapped(sandbox.NotFound, "the registry was not reached: if this machine has no way to it, bring the image with: %s save, %s load",
		e.name, e.name)
}
