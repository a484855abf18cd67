package image

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// parse reads a reference, adding what people leave out: the registry
// docker.io, its user "library", the tag "latest".
func parse(ref string) (name.Reference, error) {
	r, err := name.ParseReference(ref, name.WeakValidation)
	// The library takes paths for references.
	if err != nil || strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, ".") || strings.Contains(ref, "//") {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "image: %s is not a reference", quote(ref)),
			"write it like debian:stable-slim or registry.example.com/team/name:tag; letters are small")
	}
	return r, nil
}

// canonical returns the full form of a reference, by which the index knows it.
func canonical(ref string) (string, error) {
	r, err := parse(ref)
	if err != nil {
		return "", err
	}
	return r.Name(), nil
}

// familiar returns the short form of a full name.
func familiar(full string) string {
	short := strings.TrimPrefix(full, name.DefaultRegistry+"/")
	if short != full {
		short = strings.TrimPrefix(short, "library/")
	}
	return short
}

// Name returns the name under which [Store.List] has what [Store.Pull] fetches by
// a reference.
func Name(ref string) (string, error) {
	full, err := canonical(ref)
	return familiar(full), err
}
