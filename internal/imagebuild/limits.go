package imagebuild

import (
	"runtime"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Limits returns the default limits of a sandbox for a build, within the
// operator's maxima; a zero field of most is no maximum. Installing packages
// needs more than running a program.
func Limits(most sandbox.Limits) sandbox.Limits {
	l := sandbox.Limits{CPUs: float64(runtime.NumCPU()), MemoryBytes: 2 << 30, DiskBytes: 16 << 30, Processes: 1024}
	if most.CPUs > 0 {
		l.CPUs = min(l.CPUs, most.CPUs)
	}
	if most.MemoryBytes > 0 {
		l.MemoryBytes = min(l.MemoryBytes, most.MemoryBytes)
	}
	if most.DiskBytes > 0 {
		l.DiskBytes = min(l.DiskBytes, most.DiskBytes)
	}
	if most.Processes > 0 {
		l.Processes = min(l.Processes, most.Processes)
	}
	return l
}
