package guestapi

// PathMetrics answers a GET with the sandbox's resource usage, as [Metrics].
const PathMetrics = "/metrics"

// Metrics are the resource usage of a sandbox, as E2B's agent reports it. Sizes
// are in bytes.
type Metrics struct {
	// Time is in seconds since 1970.
	Time int64 `json:"ts"`
	// CPUUsed is the average use of all CPUCount processors in percent, since
	// the last call or since the guest began.
	CPUCount int     `json:"cpu_count"`
	CPUUsed  float64 `json:"cpu_used_pct"`
	// MemoryUsed is MemoryTotal without available memory. So it includes only
	// the part of MemoryCache that cannot be reclaimed.
	MemoryTotal int64 `json:"mem_total"`
	MemoryUsed  int64 `json:"mem_used"`
	MemoryCache int64 `json:"mem_cache"`
	DiskTotal   int64 `json:"disk_total"`
	DiskUsed    int64 `json:"disk_used"`
}
