package sandbox

import "strings"

// MaxVolumes bounds the volumes of a sandbox.
const MaxVolumes = 8

// A Volume is a workspace at a path of a sandbox.
type Volume struct {
	Workspace string `json:"workspace"`
	Path      string `json:"path"`
	ReadOnly  bool   `json:"read_only,omitempty"`
}

// ParseVolume parses NAME:PATH or NAME:PATH:ro. The name may have colons.
func ParseVolume(text string) (v Volume, err error) {
	rest, readOnly := strings.CutSuffix(text, ":ro")
	i := strings.LastIndex(rest, ":/")
	if i < 1 {
		return v, WithHint(Errorf(Invalid, "%q is no workspace and path", text), "write NAME:PATH, such as models:/mnt/models")
	}
	return Volume{Workspace: rest[:i], Path: rest[i+1:], ReadOnly: readOnly}, nil
}
