package sandbox

import (
	"fmt"
	"time"
)

// An Image is a root file system that a driver keeps for sandboxes.
type Image struct {
	// Name is the reference of the image in its short form, such as
	// "python:3.12-slim". It is empty for an image whose name a newer image took.
	Name string `json:"name,omitempty"`
	// ID is the digest of the image's configuration. Digest is the digest of its
	// manifest, as registries use it.
	ID       string `json:"id"`
	Digest   string `json:"digest"`
	Platform string `json:"platform"`
	// SizeBytes is the space that the image takes on this machine's disk. Images
	// that share layers count them each.
	SizeBytes int64     `json:"size_bytes"`
	Created   time.Time `json:"created,omitzero"`
	// Used is when a sandbox was last made from the image, or when it was stored
	// here.
	Used time.Time `json:"used,omitzero"`
	// Local is true for an image that did not come from a registry, and so cannot
	// be fetched again.
	Local  bool        `json:"local,omitempty"`
	Config ImageConfig `json:"config"`
}

// An ImageConfig is an image's configuration for the programs in it.
type ImageConfig struct {
	// Env are the default environment variables of programs, each NAME=VALUE.
	Env []string `json:"env,omitempty"`
	// User is the user that runs programs: a name or number, optionally with a
	// colon and a group.
	User string `json:"user,omitempty"`
	// WorkDir is the directory in which programs start.
	WorkDir    string            `json:"workdir,omitempty"`
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	// Ports are the ports on which programs listen, each like "8080/tcp".
	Ports []string `json:"ports,omitempty"`
}

// ImageProgress is the progress of work on an image.
type ImageProgress struct {
	// Step is the step that is under way: "resolve", "fetch" or "unpack". It is
	// "wait" while another process works on the image.
	Step string
	// Done and Total are in bytes; Total is zero where it is not known.
	Done, Total int64
}

// Text describes the progress for a person. The image's name may be empty.
func (p ImageProgress) Text(image string) string {
	if image == "" {
		image = "the image"
	}
	verb := map[string]string{
		"resolve": "looking up", "fetch": "fetching", "unpack": "unpacking", "wait": "waiting for another process to get",
	}[p.Step]
	switch {
	case p.Total > 0:
		return fmt.Sprintf("%s %d%% of %s of %s", verb, 100*p.Done/p.Total, FormatBytes(p.Total), image)
	case p.Done > 0:
		return fmt.Sprintf("%s %s of %s", verb, FormatBytes(p.Done), image)
	}
	return verb + " " + image
}
