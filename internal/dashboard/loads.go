package dashboard

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The measurement of sandboxes, for the small charts of pages.
const (
	loadEvery   = 3 * time.Second
	loadSamples = 40
	// loadWanted is how long a principal's sandboxes are measured after a page showed
	// them, so that a page has a chart when it is opened again.
	loadWanted = 5 * time.Minute
	// loadKept is how long a history stays without a new measurement.
	loadKept = 30 * time.Second
	// loadRows bounds the rows of a page with charts: each changes every few seconds.
	loadRows = 200
)

// loads are the latest measurements of sandboxes whose people look at pages.
type loads struct {
	now func() time.Time

	mu     sync.Mutex
	wanted map[sandbox.Principal]time.Time // when a page last showed its sandboxes
	of     map[string]*history
}

// A history has the measurements of a sandbox, the latest last.
type history struct {
	last    sandbox.Load
	at      time.Time
	samples []loadSample
}

// A loadSample is what a sandbox used between two measurements.
type loadSample struct {
	cpus   float64 // processors in use, on average
	memory int64
}

func newLoads(now func() time.Time) *loads {
	return &loads{now: now, wanted: map[sandbox.Principal]time.Time{}, of: map[string]*history{}}
}

// want has the sandboxes of a principal measured.
func (l *loads) want(p sandbox.Principal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted[p] = l.now()
}

// principals returns whose sandboxes to measure, and forgets old measurements.
func (l *loads) principals() []sandbox.Principal {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var list []sandbox.Principal
	for p, at := range l.wanted {
		if now.Sub(at) > loadWanted {
			delete(l.wanted, p)
			continue
		}
		list = append(list, p)
	}
	for id, h := range l.of {
		if now.Sub(h.at) > loadKept {
			delete(l.of, id)
		}
	}
	return list
}

// add adds measurements.
func (l *loads) add(of map[string]sandbox.Load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for id, load := range of {
		h := l.of[id]
		if h == nil {
			l.of[id] = &history{last: load, at: now, samples: []loadSample{{memory: load.MemoryBytes}}}
			continue
		}
		cpus := 0.0
		if passed := now.Sub(h.at); passed > 0 && load.CPU > h.last.CPU {
			cpus = (load.CPU - h.last.CPU).Seconds() / passed.Seconds()
		}
		if h.samples = append(h.samples, loadSample{cpus, load.MemoryBytes}); len(h.samples) > loadSamples {
			h.samples = h.samples[len(h.samples)-loadSamples:]
		}
		h.last, h.at = load, now
	}
}

// Run measures the sandboxes that people look at, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	ticks := time.NewTicker(loadEvery)
	defer ticks.Stop()
	for {
		for _, p := range s.loads.principals() {
			s.loads.add(s.opts.Engine.Loads(ctx, p))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// A loadView shows what a sandbox uses. A spark without a text is not known.
type loadView struct{ CPU, Memory spark }

// A spark is a small chart of the latest values.
type spark struct {
	Points string // of the line, in a picture of sparkWidth by sparkHeight
	Text   string // the latest value
	Of     string // the limit
	Label  string // for people who do not see the chart
}

// The measures of a spark.
const (
	sparkWidth  = 2 * (loadSamples - 1)
	sparkHeight = 22
)

// load returns what a sandbox used lately.
func (l *loads) load(box sandbox.Sandbox) loadView {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.of[box.ID]
	if h == nil || box.State != sandbox.Running {
		return loadView{}
	}
	var cpu, memory []float64
	for _, sample := range h.samples {
		cpu = append(cpu, sample.cpus/max(box.Limits.CPUs, 0.01))
		memory = append(memory, float64(sample.memory)/float64(max(box.Limits.MemoryBytes, 1)))
	}
	last := h.samples[len(h.samples)-1]
	v := loadView{CPU: newSpark(cpu, strconv.FormatFloat(last.cpus, 'f', 2, 64), cpus(box.Limits.CPUs), "CPU")}
	if last.memory > 0 {
		v.Memory = newSpark(memory, sandbox.FormatBytes(last.memory), sandbox.FormatBytes(box.Limits.MemoryBytes), "memory")
	}
	return v
}

// newSpark returns the chart of shares of a limit.
func newSpark(shares []float64, text, of, what string) spark {
	var points []string
	for i, share := range shares {
		x := sparkWidth - 2*(len(shares)-1-i)
		points = append(points, fmt.Sprintf("%d,%s", x, number(sparkHeight-1-min(max(share, 0), 1)*(sparkHeight-2))))
	}
	return spark{strings.Join(points, " "), text, of, fmt.Sprintf("%s of %s %s", text, of, what)}
}

func cpus(f float64) string { return strconv.FormatFloat(f, 'g', 4, 64) }
