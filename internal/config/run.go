package config

import (
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Run configures runs.
type Run struct {
	// Timeout applies to a run that asks for none; MaxTimeout is the longest
	// that a run may ask for. Zero is as long as its sandbox.
	Timeout    Duration `yaml:"timeout"`
	MaxTimeout Duration `yaml:"max_timeout"`
	// LogSize is the maximum size of a run's stored output, in bytes. Beyond it,
	// the middle is dropped and counted.
	LogSize Bytes `yaml:"log_size"`
	// LogSpace is the maximum size of the stored output of all runs, in bytes. Beyond
	// it, the principal that holds the most loses its least recently used output.
	LogSpace Bytes `yaml:"log_space"`
	// Keep is how long the records and output of runs and sandboxes are kept after
	// their end.
	Keep Duration `yaml:"keep"`
}

// Longest returns the longest timeout of a run: MaxTimeout, or [sandbox.Forever]
// if that is zero.
func (r Run) Longest() time.Duration {
	if r.MaxTimeout == 0 {
		return sandbox.Forever
	}
	return time.Duration(r.MaxTimeout)
}

// unattended is the timeout of programs whose caller cannot name one.
const unattended = 10 * time.Minute

// Unattended returns the timeout of programs whose caller cannot name one, such as
// those of profiles and of image builds: MaxTimeout, or ten minutes if that is zero.
// Otherwise a program that hangs would block its caller for the sandbox's lifetime.
func (r Run) Unattended() time.Duration {
	if r.MaxTimeout == 0 {
		return max(unattended, time.Duration(r.Timeout))
	}
	return time.Duration(r.MaxTimeout)
}

const (
	// minLogSize holds the head and the tail of output with the usual budget.
	minLogSize = 128 << 10
	// usedLogSize is the space of each run for its output, also if LogSize is less.
	usedLogSize = 8 << 20
	// defaultLogSpace is valid with any LogSize, because a configuration from before
	// LogSpace may have a large one. The engine raises it to twice LogSize.
	defaultLogSpace = 4 << 30
)

func (r Run) validate() error {
	if r.Timeout <= 0 {
		return invalid("run.timeout", fmt.Sprintf("%v is not a positive duration", r.Timeout), "write it like 30s or 5m")
	}
	if r.Longest() < time.Duration(r.Timeout) {
		return invalid("run.max_timeout", fmt.Sprintf("%v is less than run.timeout, %v", r.MaxTimeout, r.Timeout),
			"raise run.max_timeout, write 0 for as long as the sandbox, or lower run.timeout")
	}
	if keep := time.Duration(r.Keep); keep < time.Minute || keep > 10*366*24*time.Hour {
		return invalid("run.keep", fmt.Sprintf("%v is not between a minute and 10 years", r.Keep), "write a time such as 24h or 720h")
	}
	if r.LogSize < minLogSize {
		return invalid("run.log_size", fmt.Sprintf("%v is below the minimum, %v", r.LogSize, Bytes(minLogSize)),
			"write it like 64MiB")
	}
	if least := 2 * max(r.LogSize, usedLogSize); r.LogSpace < least && r.LogSpace != defaultLogSpace {
		return invalid("run.log_space", fmt.Sprintf("%v is less than twice the space of a run, %v", r.LogSpace, least),
			"raise it, or lower run.log_size")
	}
	return nil
}
