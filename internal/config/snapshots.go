package config

import (
	"fmt"
	"time"
)

// Snapshots configures snapshots of sandboxes.
type Snapshots struct {
	// Count and Size limit the snapshots of one principal together.
	Count int   `yaml:"count"`
	Size  Bytes `yaml:"size"`
	// Keep is how long a snapshot is kept.
	Keep Duration `yaml:"keep"`
}

func (s *Snapshots) validate() error {
	switch {
	case s.Count < 1:
		return invalid("snapshots.count", fmt.Sprintf("%d is not a number of snapshots", s.Count), "set it to 1 or more")
	case s.Size < 1:
		return invalid("snapshots.size", fmt.Sprintf("%d is not a size", s.Size), "write it like 16GiB")
	case s.Keep <= 0:
		return invalid("snapshots.keep", fmt.Sprintf("%v is not a time", time.Duration(s.Keep)), "write it like 168h")
	}
	return nil
}
