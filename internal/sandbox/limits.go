package sandbox

import (
	"fmt"
	"math"
	"time"
)

// Limits bound one sandbox. In a request, a zero field means the default. In a
// sandbox that exists, every field holds the value in force.
type Limits struct {
	// CPUs is processor time in CPUs: 0.5 is half of one CPU.
	CPUs float64 `json:"cpus"`
	// MemoryBytes bounds the memory of the sandbox's programs and of their files
	// in memory, together. There is no swap.
	MemoryBytes int64 `json:"memory_bytes"`
	// DiskBytes bounds the writable layer over the image.
	DiskBytes int64 `json:"disk_bytes"`
	// Processes bounds the processes and threads that are alive at one time.
	Processes int `json:"processes"`
	// Idle is how long a sandbox lives without a run. Lifetime is how long it
	// lives in total.
	Idle     time.Duration `json:"idle"`
	Lifetime time.Duration `json:"lifetime"`
}

// DefaultLimits returns the limits of a sandbox whose creator asked for none.
func DefaultLimits() Limits {
	return Limits{
		CPUs:        1,
		MemoryBytes: 512 << 20,
		DiskBytes:   1 << 30,
		Processes:   256,
		Idle:        10 * time.Minute,
		Lifetime:    24 * time.Hour,
	}
}

// The minimum of each limit. Below these values the guest itself does not start
// reliably.
const (
	MinCPUs        = 0.05
	MinMemoryBytes = 64 << 20
	MinDiskBytes   = 1 << 20
	MinProcesses   = 16
	MinIdle        = time.Second
)

// Forever stands for no limit of a duration: a lifetime that does not end a
// sandbox, and the timeout of a run that may take as long as its sandbox. It can be
// added to any time, and clocks take it.
const Forever = 100 * 365 * 24 * time.Hour

// Or returns l with every zero field taken from d.
func (l Limits) Or(d Limits) Limits {
	if l.CPUs == 0 {
		l.CPUs = d.CPUs
	}
	if l.MemoryBytes == 0 {
		l.MemoryBytes = d.MemoryBytes
	}
	if l.DiskBytes == 0 {
		l.DiskBytes = d.DiskBytes
	}
	if l.Processes == 0 {
		l.Processes = d.Processes
	}
	if l.Idle == 0 {
		l.Idle = d.Idle
	}
	if l.Lifetime == 0 {
		l.Lifetime = d.Lifetime
	}
	return l
}

// Check reports whether each field of l lies between its minimum and the field of
// most. l has no zero fields. A zero field of most means no maximum. The error
// wraps [Invalid] and names the first field that is out of range.
func (l Limits) Check(most Limits) error {
	if math.IsNaN(l.CPUs) || math.IsInf(l.CPUs, 0) {
		return Errorf(Invalid, "cpus: %v is not a number of CPUs", l.CPUs)
	}
	checks := limitsOf(l, most)
	for _, c := range checks {
		if c.got < c.min {
			err := Errorf(Invalid, "%s: %s is below the minimum, %s", c.name, c.show(c.got), c.show(c.min))
			if bytes := c.name == "memory" || c.name == "disk"; bytes && c.got < 1<<20 {
				err = WithHint(err, "a size without a unit is in bytes; write it like %.0fMiB", max(c.got, c.min/(1<<20)))
			}
			return err
		}
		if c.max != 0 && c.got > c.max {
			return WithHint(
				Errorf(Invalid, "%s: %s is above the server's maximum, %s", c.name, c.show(c.got), c.show(c.max)),
				"ask for less, or ask the operator to raise the maximum")
		}
	}
	return nil
}

// A limitCheck compares one field of two Limits.
type limitCheck struct {
	name          string
	got, min, max float64
	show          func(float64) string
}

// limitsOf returns the fields of l, each with its minimum and the field of most.
func limitsOf(l, most Limits) []limitCheck {
	return []limitCheck{
		{"cpus", l.CPUs, MinCPUs, most.CPUs, func(f float64) string { return fmt.Sprintf("%g", f) }},
		{"memory", float64(l.MemoryBytes), MinMemoryBytes, float64(most.MemoryBytes), showBytes},
		{"disk", float64(l.DiskBytes), MinDiskBytes, float64(most.DiskBytes), showBytes},
		{"processes", float64(l.Processes), MinProcesses, float64(most.Processes), func(f float64) string { return fmt.Sprintf("%.0f", f) }},
		{"idle", float64(l.Idle), float64(MinIdle), float64(most.Idle), showDuration},
		{"lifetime", float64(l.Lifetime), float64(MinIdle), float64(most.Lifetime), showDuration},
	}
}

// Above describes each field of l that is above the same field of d, such as
// "memory 2 GiB (default 512 MiB)". Neither has zero fields.
func (l Limits) Above(d Limits) []string {
	var found []string
	for _, c := range limitsOf(l, d) {
		if c.got > c.max {
			found = append(found, fmt.Sprintf("%s %s (default %s)", c.name, c.show(c.got), c.show(c.max)))
		}
	}
	return found
}

func showBytes(f float64) string    { return FormatBytes(int64(f)) }
func showDuration(f float64) string { return FormatDuration(time.Duration(f)) }

// FormatDuration writes d as [time.Duration.String] does, and [Forever] as none.
func FormatDuration(d time.Duration) string {
	if d >= Forever {
		return "none"
	}
	return d.String()
}

// FormatBytes writes n with a binary unit: 512 MiB, 1.5 GiB, 17 B.
func FormatBytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 5 {
		f /= unit
		i++
	}
	return fmt.Sprintf("%.4g %ciB", f, "KMGTPE"[i])
}
