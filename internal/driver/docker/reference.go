package docker

import (
	"regexp"

	"github.com/distribution/reference"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var (
	imageID  = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)
	shortID  = regexp.MustCompile(`^[0-9a-f]{12,63}$`)
	errNoRef = "write it like python:3.12-slim or ghcr.io/owner/name@sha256:…"
)

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

// registryOf returns the host of the registry of an image.
func registryOf(name string) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "image %q: %w", name, err)
	}
	return reference.Domain(named), nil
}
