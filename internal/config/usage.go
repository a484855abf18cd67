package config

import (
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Usage configures how usage is counted.
type Usage struct {
	// Label is the key of the label (in E2B's words, the metadata) of sandboxes by which
	// usage is counted; "" is none.
	Label string `yaml:"label"`
}

func (u *Usage) validate() error {
	if len(u.Label) > maxUsageLabel {
		return invalid("usage.label", fmt.Sprintf("%s is too long for a key", sandbox.FormatBytes(int64(len(u.Label)))), "write a key of at most %d bytes", maxUsageLabel)
	}
	return nil
}

// maxUsageLabel bounds the key of a label, in bytes.
const maxUsageLabel = 100
