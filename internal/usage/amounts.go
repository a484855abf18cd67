// Package usage is the arithmetic of accounts: the amounts that sandboxes and runs
// use, and their division into hours and days.
//
// All functions are pure: they read no clock and keep no state. The store records
// the amounts, and the engine measures them. Amounts never become negative, and a sum
// that would overflow stays at the largest number.
package usage

import (
	"math"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Amounts are what was used in an interval, or in all intervals of an account.
type Amounts struct {
	// Sandboxes is the number of sandboxes that started, and SandboxMillis the time
	// for which sandboxes existed.
	Sandboxes     int64 `json:"sandboxes"`
	SandboxMillis int64 `json:"sandbox_ms"`
	// MemoryKiBSeconds is the memory limit of each sandbox multiplied by its time.
	MemoryKiBSeconds int64 `json:"memory_kib_s"`
	// CPUMillis is the CPU time of sandboxes.
	CPUMillis int64 `json:"cpu_ms"`
	// Runs is the number of runs that ended, and RunMillis their time.
	Runs      int64 `json:"runs"`
	RunMillis int64 `json:"run_ms"`
	// SentBytes and ReceivedBytes are the traffic of sandboxes.
	SentBytes     int64 `json:"sent_bytes"`
	ReceivedBytes int64 `json:"received_bytes"`
	// StorageKiBSeconds is the size of each workspace multiplied by its time.
	StorageKiBSeconds int64 `json:"storage_kib_s"`
}

// Names are the names of the amounts in JSON, CSV and the database, in the order of
// [Amounts.Values].
func Names() []string {
	return []string{"sandboxes", "sandbox_ms", "memory_kib_s", "cpu_ms", "runs", "run_ms", "sent_bytes", "received_bytes", "storage_kib_s"}
}

// Values returns pointers to the amounts in the order of [Names].
func (a *Amounts) Values() []*int64 {
	return []*int64{
		&a.Sandboxes, &a.SandboxMillis, &a.MemoryKiBSeconds, &a.CPUMillis, &a.Runs, &a.RunMillis,
		&a.SentBytes, &a.ReceivedBytes, &a.StorageKiBSeconds,
	}
}

// Plus returns the sum of a and b.
func (a Amounts) Plus(b Amounts) Amounts {
	sums, more := a.Values(), b.Values()
	for i, p := range sums {
		*p = add(*p, *more[i])
	}
	return a
}

// IsZero reports whether nothing was used.
func (a Amounts) IsZero() bool { return a == Amounts{} }

func add(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// Counters are the totals of one sandbox since its box began, as they were measured
// last. No counter becomes smaller.
type Counters struct {
	// BoxCounts means that the host kernel counts the CPU time of the box, as
	// BoxCPUMillis. It never changes. RunCPUMillis is the CPU time of the runs that
	// ended, as the guest counts it.
	BoxCounts    bool
	BoxCPUMillis int64
	RunCPUMillis int64

	SentBytes, ReceivedBytes int64
}

// CPUMillis returns the CPU time of the sandbox. The guest's count is larger than the
// host's while other programs use the processors, and smaller by the work of the sentry.
func (c Counters) CPUMillis() int64 {
	if c.BoxCounts {
		return c.BoxCPUMillis
	}
	return c.RunCPUMillis
}

// Advance returns the counters after a new measurement, and what was used between
// the two. A counter of the measurement that is smaller than before is ignored, so a
// repeated or late measurement counts nothing twice.
func (c Counters) Advance(to Counters) (Counters, Amounts) {
	next := Counters{
		BoxCounts:     c.BoxCounts,
		BoxCPUMillis:  max(c.BoxCPUMillis, to.BoxCPUMillis),
		RunCPUMillis:  max(c.RunCPUMillis, to.RunCPUMillis),
		SentBytes:     max(c.SentBytes, to.SentBytes),
		ReceivedBytes: max(c.ReceivedBytes, to.ReceivedBytes),
	}
	return next, Amounts{
		CPUMillis:     next.CPUMillis() - c.CPUMillis(),
		SentBytes:     next.SentBytes - c.SentBytes,
		ReceivedBytes: next.ReceivedBytes - c.ReceivedBytes,
	}
}

// A Row is the sum of some intervals. A field that the query did not ask for is
// empty.
type Row struct {
	// Start is the beginning of the hour or day, in UTC.
	Start     time.Time         `json:"start,omitzero"`
	Principal sandbox.Principal `json:"principal,omitempty"`
	Workspace string            `json:"workspace,omitempty"`
	Label     string            `json:"label,omitempty"`
	SandboxID string            `json:"sandbox_id,omitempty"`
	Amounts
}

// MaxLabel bounds the length of a label that amounts are counted by, in bytes.
const MaxLabel = 100

// LabelOf returns the value of a sandbox's label by which its usage is counted. It
// shortens a longer value.
func LabelOf(labels map[string]string, key string) string {
	if key == "" {
		return ""
	}
	v := strings.ToValidUTF8(labels[key], "?")
	if len(v) > MaxLabel {
		v = strings.ToValidUTF8(v[:MaxLabel], "")
	}
	return v
}

// Other is the label of intervals beyond the bound on labels and workspaces in one
// hour of one principal.
const Other = "(other)"
