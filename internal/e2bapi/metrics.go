package e2bapi

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A metric is a sandbox's use of resources at one moment.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int32     `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// metrics returns what a sandbox uses now. Past values are not kept. So the list
// has one entry, or none if the requested period excludes now or the sandbox is
// paused.
func (s *Server) metrics(r *http.Request, p sandbox.Principal) (int, any, error) {
	sb, err := s.get(r, p)
	if err != nil {
		return 0, nil, err
	}
	now := s.opts.Now().UTC()
	list := []metric{}
	for name, within := range map[string]func(at int64) bool{
		"start": func(at int64) bool { return at <= now.Unix() },
		"end":   func(at int64) bool { return at >= now.Unix() },
	} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, nil, sandbox.Errorf(sandbox.Invalid, "%s: %s is not a time in seconds", name, short(text))
		}
		if !within(at) {
			return http.StatusOK, list, nil
		}
	}
	if sb.State == sandbox.Hibernated {
		return http.StatusOK, list, nil
	}
	m, err := s.readMetrics(r, p, sb.ID)
	if err != nil {
		return 0, nil, err
	}
	// The guest reports its use relative to all CPUs of the machine. Convert it
	// to a percentage of the sandbox's own CPUs.
	share := m.CPUUsed * float64(m.CPUCount) / sb.Limits.CPUs
	list = append(list, metric{
		Timestamp: now, TimestampUnix: now.Unix(),
		CPUCount: int32(math.Ceil(sb.Limits.CPUs)), CPUUsedPct: max(0, min(share, 100)),
		MemUsed: m.MemoryUsed, MemTotal: m.MemoryTotal, MemCache: m.MemoryCache,
		DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	})
	return http.StatusOK, list, nil
}

// readMetrics gets the metrics from the guest.
func (s *Server) readMetrics(r *http.Request, p sandbox.Principal, id string) (*guestapi.Metrics, error) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://guest"+guestapi.PathMetrics, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.opts.Engine.Forward(p, id, sandbox.ProgramDefaults{}, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	m := new(guestapi.Metrics)
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(m)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the sandbox did not tell what it uses (HTTP status %d)", resp.StatusCode)
	}
	return m, nil
}
