package config

import (
	"fmt"
	"path/filepath"
	"time"
)

// Saved configures the states of sandboxes on the disk.
type Saved struct {
	// CompressAfter is how long a sandbox hibernates on disk before its state is
	// compressed; zero is never.
	CompressAfter Duration `yaml:"compress_after"`
	// Encrypt encrypts further states of hibernated sandboxes and of snapshots with the
	// key in the file Key. The key opens encrypted states in any case.
	Encrypt bool   `yaml:"encrypt"`
	Key     string `yaml:"key"`
}

func (s *Saved) validate() error {
	if s.CompressAfter < 0 {
		return invalid("saved.compress_after", fmt.Sprintf("%v is not a time", time.Duration(s.CompressAfter)), "write it like 1h, or 0 for never")
	}
	if s.Encrypt && s.Key == "" {
		return invalid("saved.encrypt", "there is no key", "set saved.key to a file for it, which Glovebox makes")
	}
	if s.Key != "" && !filepath.IsAbs(s.Key) {
		return invalid("saved.key", fmt.Sprintf("%q is not an absolute path", s.Key), "write the complete path, from /")
	}
	return nil
}
