package dockerapi

import (
	"context"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Pull has the container engine pull an image of a registry, with the credentials
// that docker login stored. progress receives the progress until Pull returns.
func (e *Engine) Pull(ctx context.Context, name, registry string, progress func(sandbox.ImageProgress)) error {
	progress(sandbox.ImageProgress{Step: "resolve"})
	auth, err := e.Credentials(registry)
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

// layers adds up the progress that a container engine reports for each layer of a pull.
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
func (e *Engine) explainPull(name string, err error) error {
	text := err.Error()
	is := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(text, t) })
	}
	wrapped := func(kind sandbox.Kind, hint string, args ...any) error {
		return sandbox.WithHint(sandbox.Errorf(kind, "pull image %s: %w", name, err), hint, args...)
	}
	switch {
	case is("no matching manifest", "no image found in manifest list", "no image found in image index", "does not match the specified platform"):
		return wrapped(sandbox.NotFound, "there is none for %s; build it for that, or name another", e.Facts.Architecture)
	case is("toomanyrequests", "429 Too Many Requests"):
		return wrapped(sandbox.Exhausted, "wait, or log in with: %s login; known users may ask more often", e.Name)
	case is("denied", "unauthorized", "authentication required", "no basic auth credentials"):
		return wrapped(sandbox.NotFound, "log in with: %s login; or check the name: registries say the same of what does not exist", e.Name)
	case is("manifest verification failed", "filesystem layer verification failed"):
		return wrapped(sandbox.Unavailable, "the content does not have that digest: the registry is broken, or an attacker changes the connection")
	case is("manifest unknown", "name unknown", "repository name not known", "manifest for "):
		return wrapped(sandbox.NotFound, "check the name and the tag")
	case is("no space left on device"):
		return wrapped(sandbox.Exhausted, "make room: %s image prune", e.Name)
	case is("context canceled", "context deadline exceeded"):
		return err
	case is("unexpected HTTP status"):
		return wrapped(sandbox.Unavailable, "the registry is in trouble: try again later")
	}
	return wrapped(sandbox.Unavailable, "the registry was not reached: if there is no way to it, bring the image with: docker save %s | glovebox images load -", name)
}
