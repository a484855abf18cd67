package sandbox

import (
	"fmt"
	"time"
)

// An Image is a root file system that a driver keeps for sandboxes.
type Image struct {
	// Name is the reference that it is kept under, in the short form that
	// people write: "python:3.12-slim". It is empty for one that lost its name
	// to a newer one.
	Name string `json:"name,omitempty"`
	// ID names the image itself: the digest of its configuration. Digest is
	// that of its manifest, as registries know it.
	ID       string `json:"id"`
	Digest   string `json:"digest"`
	Platform string `json:"platform"`
	// SizeBytes is what it takes on this machine's disk; images that share
	// layers count them each.
	SizeBytes int64     `json:"size_bytes"`
	Created   time.Time `json:"created,omitzero"`
	// Used is when a sandbox was last made of it, or when it came here.
	Used time.Time `json:"used,omitzero"`
	// Local images did not come from a registry, and so could not be had again.
	Local  bool        `json:"local,omitempty"`
	Config ImageConfig `json:"config"`
}

// An ImageConfig is what an image says about the programs in it.
type ImageConfig struct {
	// Env are the variables that programs have unless they are given others,
	// each NAME=VALUE.
	Env []string `json:"env,omitempty"`
	// User is who runs programs, a name or a number, or two with a colon
	// between: user and group.
	User string `json:"user,omitempty"`
	// WorkDir is where programs start.
	WorkDir    string            `json:"workdir,omitempty"`
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	// Ports are what programs in it listen on, each like "8080/tcp".
	Ports []string `json:"ports,omitempty"`
}

// ImageProgress tells how far work on an image is.
type ImageProgress struct {
	// Step is what is done: "resolve", "fetch", "unpack" or, when another
	// process is at it, "wait".
	Step string
	// Done and Total are in bytes; Total is zero where it is not known.
	Done, Total int64
}

// Text says what is done to an image of that name, which may be empty.
func (p ImageProgress) Text(image string) string {
	if image == "" {
		image = "the image"
	}
	verb := map[string]string{
		"resolve": "looking up", "fetch": "fetching", "unpack": "unpacking", "wait": "waiting for another who has",
	}[p.Step]
	switch {
	case p.Total > 0:
		return fmt.Sprintf("%s %d%% of %s of %s", verb, 100*p.Done/p.Total, FormatBytes(p.Total), image)
	case p.Done > 0:
		return fmt.Sprintf("%s %s of %s", verb, FormatBytes(p.Done), image)
	}
	return verb + " " + image
}
