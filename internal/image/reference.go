package image

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// parse parses a reference and adds the default parts: the registry docker.io,
// its user "library", the tag "latest".
func parse(ref string) (name.Reference, error) {
	r, err := name.ParseReference(ref, name.WeakValidation)
	// The library accepts file paths as references.
	if err != nil || strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, ".") || strings.Contains(ref, "//") {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "image: %s is not a reference", quote(ref)),
			"write it like debian:stable-slim or registry.example.com/team/name:tag; use lower-case letters")
	}
	return r, nil
}

// canonical returns the full form of a reference, which is its key in the index.
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

// Name returns the name that [Store.List] gives to an image that [Store.Pull]
// fetched by ref. The error wraps [sandbox.Invalid].
func Name(ref string) (string, error) {
	full, err := canonical(ref)
	return familiar(full), err
}
