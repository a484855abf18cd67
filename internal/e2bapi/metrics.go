package e2bapi

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
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

// metricOf returns a sample of a sandbox in E2B's format. The guest reports its use
// relative to all CPUs of the machine, which becomes a percentage of the sandbox's
// own CPUs.
func metricOf(sb sandbox.Sandbox, m sample) metric {
	share := m.CPUUsed * float64(m.CPUCount) / sb.Limits.CPUs
	at := m.at.UTC()
	return metric{
		Timestamp: at, TimestampUnix: at.Unix(),
		CPUCount: int32(math.Ceil(sb.Limits.CPUs)), CPUUsedPct: max(0, min(share, 100)),
		MemUsed: m.MemoryUsed, MemTotal: m.MemoryTotal, MemCache: m.MemoryCache,
		DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	}
}

// metrics returns what a sandbox used in the requested period, oldest first: the
// kept samples and, if the sandbox runs and now is in the period, its present use.
func (s *Server) metrics(r *http.Request, p sandbox.Principal) (int, any, error) {
	sb, err := s.get(r, p)
	if err != nil {
		return 0, nil, err
	}
	from, to, err := parsePeriod(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	within := func(at time.Time) bool { return from <= at.Unix() && at.Unix() <= to }
	list := []metric{}
	for _, m := range s.history.list(sb.ID) {
		if within(m.at) {
			list = append(list, metricOf(sb, m))
		}
	}
	if sb.State == sandbox.Hibernated || !within(s.opts.Now()) {
		return http.StatusOK, list, nil
	}
	m, err := s.present(r.Context(), p, sb.ID)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, append(list, metricOf(sb, m)), nil
}

// parsePeriod returns the first and the last second of the requested period. Without
// a bound, the period is unbounded on that side.
func parsePeriod(v url.Values) (from, to int64, err error) {
	to = math.MaxInt64
	for name, bound := range map[string]*int64{"start": &from, "end": &to} {
		text := v.Get(name)
		if text == "" {
			continue
		}
		if *bound, err = strconv.ParseInt(text, 10, 64); err != nil || *bound < 0 {
			return 0, 0, sandbox.Errorf(sandbox.Invalid, "%s: %s is not a time in seconds since 1970", name, short(text))
		}
	}
	if from > to {
		return 0, 0, sandbox.Errorf(sandbox.Invalid, "start: %d is after end, %d", from, to)
	}
	return from, to, nil
}

// maxListed bounds the sandboxes in a request for the metrics of several.
const maxListed = 100

// listMetrics returns what several sandboxes use now. Those that do not run, or are
// another principal's, are missing in the answer.
func (s *Server) listMetrics(r *http.Request, p sandbox.Principal) (int, any, error) {
	ids := map[string]bool{}
	for _, list := range r.URL.Query()["sandbox_ids"] {
		for id := range strings.SplitSeq(list, ",") {
			ids[id] = true
		}
	}
	delete(ids, "")
	if len(ids) == 0 || len(ids) > maxListed {
		return 0, nil, sandbox.Errorf(sandbox.Invalid, "sandbox_ids: %d sandboxes are named; name 1 to %d, separated by commas", len(ids), maxListed)
	}
	var (
		mu   sync.Mutex
		read sync.WaitGroup
	)
	found := map[string]metric{}
	ctx, cancel := context.WithTimeout(r.Context(), sampleTimeout)
	defer cancel()
	for id := range ids {
		sb, err := s.opts.Engine.Get(r.Context(), p, sandbox.CanonicalID(id))
		if err != nil || sb.State != sandbox.Running {
			continue
		}
		read.Go(func() {
			m, err := s.latest(ctx, p, sb.ID)
			if err != nil {
				return // it stops, or its guest does not answer
			}
			mu.Lock()
			defer mu.Unlock()
			found[sandbox.HostID(sb.ID)] = metricOf(sb, m)
		})
	}
	read.Wait()
	return http.StatusOK, struct {
		Sandboxes map[string]metric `json:"sandboxes"`
	}{found}, nil
}

// latest returns the latest sample of a sandbox, or its present use if there is no
// recent sample.
func (s *Server) latest(ctx context.Context, p sandbox.Principal, id string) (sample, error) {
	if all := s.history.list(id); len(all) > 0 {
		if last := all[len(all)-1]; s.opts.Now().Sub(last.at) < 2*sampleEvery {
			return last, nil
		}
	}
	return s.present(ctx, p, id)
}

// present returns what a sandbox uses now.
func (s *Server) present(ctx context.Context, p sandbox.Principal, id string) (sample, error) {
	m, err := readMetrics(ctx, func(req *http.Request) (*http.Response, error) {
		return s.opts.Engine.Forward(p, id, sandbox.ProgramDefaults{}, req)
	})
	if err != nil {
		return sample{}, err
	}
	return sample{s.opts.Now(), *m}, nil
}

// readMetrics gets the metrics from a guest by send.
func readMetrics(ctx context.Context, send func(*http.Request) (*http.Response, error)) (*guestapi.Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest"+guestapi.PathMetrics, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(guestapi.HeaderExtensions, "1") // the server asks, not a client of E2B's protocol
	resp, err := send(req)
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
