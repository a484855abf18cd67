package guestapi

// PathMetrics answers a GET with what the sandbox uses now, as [Metrics].
const PathMetrics = "/metrics"

// Metrics are what a sandbox uses, as E2B's agent tells it. Sizes are bytes.
type Metrics struct {
	// Time is in seconds since 1970.
	Time int64 `json:"ts"`
	// CPUUsed is how much of CPUCount processors, in percent of all of them,
	// was used since the last call, or since the guest began.
	CPUCount int     `json:"cpu_count"`
	CPUUsed  float64 `json:"cpu_used_pct"`
	// MemoryUsed includes MemoryCache, which can be had back, only in part.
	MemoryTotal int64 `json:"mem_total"`
	MemoryUsed  int64 `json:"mem_used"`
	MemoryCache int64 `json:"mem_cache"`
	DiskTotal   int64 `json:"disk_total"`
	DiskUsed    int64 `json:"disk_used"`
}
