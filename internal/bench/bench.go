// Package bench measures the cost of running a line of untrusted code on this
// machine. It measures Glovebox and the installed alternatives side by side in
// one run, so that users can check published figures.
//
// Single calls are interleaved, one of each kind per round, so that other load
// on the machine affects all kinds equally. A figure is the time from the call
// to its complete result. Figures of different runs are never compared.
//
// Only the command line imports this package. [Run] stops the sandboxes that it
// makes before it returns.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Sandboxer is the engine under test.
type Sandboxer interface {
	Start(ctx context.Context, p sandbox.Principal, req sandbox.RunRequest) (sandbox.Run, error)
	Wait(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	Stop(ctx context.Context, p sandbox.Principal, id string) error
}

// A Caller runs code as an MCP client does, in a live context of a sandbox. If
// id is empty, it makes a new sandbox. It returns the sandbox's ID.
type Caller interface {
	RunCode(ctx context.Context, id, code string) (sandboxID string, err error)
	Stop(ctx context.Context, id string) error
}

// Options select the measurements.
type Options struct {
	// Cold makes each sandbox on request; Warm has a pool.
	Cold, Warm Sandboxer
	// Ready waits until Warm has a sandbox ready.
	Ready func(ctx context.Context) error
	// Rounds is the number of measurements of each single call.
	Rounds int
	// Callers are numbers of concurrent callers. Each caller runs one program in
	// a new sandbox.
	Callers []int
	// Sustain is how long eight callers run programs continuously, each in a new
	// sandbox; 0 skips this.
	Sustain time.Duration
	// Serve, if not nil, calls a server over MCP and HTTP. The server has the
	// same sandboxes as Warm.
	Serve Caller
	// Idle is the number of sandboxes whose memory is measured; 0 skips this.
	Idle int
	// Plots enables the measurement of plots, if Python without a sandbox can
	// make them.
	Plots bool
	// Image is the image for Docker. Without Docker or the image, that part is
	// skipped.
	Image string
	// Version is the version of the program under test.
	Version string
	// Say prints a progress message.
	Say func(format string, args ...any)
}

// A Report holds the results.
type Report struct {
	Version string   `json:"version"`
	Machine Machine  `json:"machine"`
	Figures []Figure `json:"figures"`
	// Notes list skipped measurements, with reasons, and failures.
	Notes []string `json:"notes,omitempty"`
}

// A Machine describes the machine of the measurement.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	// CPU is the processor's name, and Memory is in bytes; zero if unknown.
	CPU    string `json:"cpu,omitempty"`
	Memory int64  `json:"memory_bytes,omitempty"`
	// Load and LoadAfter are the system's load averages at the beginning and at
	// the end. They include the benchmark's own load.
	Load      string    `json:"load,omitempty"`
	LoadAfter string    `json:"load_after,omitempty"`
	When      time.Time `json:"when"`
}

func (m Machine) String() string {
	s := fmt.Sprintf("%s/%s, %d CPUs", m.OS, m.Arch, m.CPUs)
	if m.CPU != "" {
		s += " (" + m.CPU + ")"
	}
	if m.Memory > 0 {
		s += ", " + sandbox.FormatBytes(m.Memory) + " of memory"
	}
	if m.Load != "" {
		s += ", load " + m.Load + " when it began"
	}
	if m.LoadAfter != "" {
		s += " and " + m.LoadAfter + " at the end"
	}
	return s
}

// A Figure is one line of the report. Times are in milliseconds.
type Figure struct {
	Name   string  `json:"name"`
	N      int     `json:"n"`
	Failed int     `json:"failed,omitempty"`
	P50    float64 `json:"p50_ms,omitempty"`
	P99    float64 `json:"p99_ms,omitempty"`
	// Total is the time of all calls, if they were concurrent. PerSecond is the
	// rate of completed calls, if they were continuous.
	Total     float64 `json:"total_ms,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`
	// Memory is the memory of one idle sandbox, in bytes. Grown is the growth of
	// this process's memory during the measurement, in bytes.
	Memory int64 `json:"memory_bytes,omitempty"`
	Grown  int64 `json:"grown_bytes,omitempty"`
	// Goal is the target, or nil. Times is the improvement over docker run in
	// the same measurement, as a factor.
	Goal  *Goal   `json:"goal,omitempty"`
	Times float64 `json:"times_docker_run,omitempty"`
}

// A call is one operation to measure. The times of prepare and after do not
// count.
type call struct {
	name    string
	prepare func(ctx context.Context) error
	do      func(ctx context.Context) error
	after   func(ctx context.Context) error
}

const (
	principal = sandbox.Principal("bench")
	line      = "print(1)"
	heavy     = "import pandas, matplotlib"
	// plot is the typical first step of an analysis.
	plot = "import io, pandas, matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\n" +
		"plt.plot(pandas.Series([1, 3, 2]))\nplt.savefig(io.BytesIO())"
)

// Run runs the benchmark. If ctx ends, it returns the results so far with ctx's
// error.
func Run(ctx context.Context, o Options) (Report, error) {
	r := Report{Version: o.Version, Machine: Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Load: load(), When: time.Now()}}
	r.Machine.CPU, r.Machine.Memory = hardware()
	b := &bench{Options: o, report: &r}
	defer b.cleanUp()
	calls, err := b.calls(ctx)
	if err == nil {
		err = b.inTurn(ctx, calls)
	}
	if err == nil && o.Idle > 0 {
		err = b.idle(ctx)
	}
	ways := []way{{"", b.Ready, b.one}}
	if b.container != "" {
		ways = append(ways, way{prefixDocker, nil, b.oneOfDocker})
	}
	for _, n := range o.Callers {
		for _, w := range ways {
			if err == nil {
				err = b.burst(ctx, n, w)
			}
		}
	}
	if err == nil && o.Sustain > 0 {
		err = b.sustain(ctx, ways)
	}
	r.Machine.LoadAfter = load()
	r.judge()
	return r, err
}

type bench struct {
	Options
	report *Report

	mu        sync.Mutex
	made      []string // sandboxes to stop at the end
	served    string   // sandbox of Serve to stop at the end
	container string   // Docker container to remove at the end
}

func (b *bench) note(format string, args ...any) {
	b.report.Notes = append(b.report.Notes, fmt.Sprintf(format, args...))
}

// calls returns the calls that can be measured here.
func (b *bench) calls(ctx context.Context) ([]call, error) {
	var calls []call
	if python := findPython(); python != "" {
		calls = append(calls, call{name: "python3, without any sandbox", do: program(python, "-c", line)})
	} else {
		b.note("python3 is not measured: it is not installed")
	}
	containers := b.docker(ctx)
	calls = append(calls, containers...)
	plots := false
	if python := findPython(); python != "" && b.Plots {
		plots = program(python, "-c", heavy)(ctx) == nil
		if plots {
			calls = append(calls, call{name: "python3 that plots, without any sandbox", do: program(python, "-c", plot)})
			if len(containers) > 0 {
				calls = append(calls, b.dockerPlot(ctx)...)
			}
		} else {
			b.note("plots are not measured: %s has no pandas and matplotlib", python)
		}
	}

	var used string
	stop := func(s Sandboxer) func(context.Context) error {
		return func(ctx context.Context) error { return s.Stop(ctx, principal, used) }
	}
	calls = append(calls,
		call{
			name: "glovebox, a sandbox made on demand",
			do: func(ctx context.Context) (err error) {
				used, err = b.run(ctx, b.Cold, sandbox.RunRequest{Code: line})
				return err
			},
			after: stop(b.Cold),
		},
		call{
			name:    "glovebox, a fresh sandbox of the pool",
			prepare: b.Ready,
			do: func(ctx context.Context) (err error) {
				used, err = b.run(ctx, b.Warm, sandbox.RunRequest{Code: line, Context: sandbox.DefaultContext})
				return err
			},
			after: stop(b.Warm),
		})
	overHTTP := func(name, code string) call {
		return call{
			name:    name,
			prepare: b.Ready,
			do: func(ctx context.Context) (err error) {
				used, err = b.Serve.RunCode(ctx, "", code)
				return err
			},
			after: func(ctx context.Context) error { return b.Serve.Stop(ctx, used) },
		}
	}
	if b.Serve != nil {
		calls = append(calls, overHTTP(nameFresh, line))
		if plots {
			calls = append(calls, overHTTP(namePlot, plot))
		}
	}
	live, err := b.run(ctx, b.Warm, sandbox.RunRequest{Code: line, Context: sandbox.DefaultContext})
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", line, err)
	}
	b.keep(live)
	in := func(req sandbox.RunRequest) func(context.Context) error {
		req.SandboxID = live
		return func(ctx context.Context) error {
			_, err := b.run(ctx, b.Warm, req)
			return err
		}
	}
	// A sandbox is paused soon after its last use. So the calls in a live
	// sandbox use it just before. The resume has its own figure.
	value := in(sandbox.RunRequest{Code: "1+1", Context: sandbox.DefaultContext})
	calls = append(calls,
		call{name: "glovebox, python3 in a running sandbox", prepare: value, do: in(sandbox.RunRequest{Code: line})},
		call{name: "glovebox, /bin/true in a running sandbox", prepare: value, do: in(sandbox.RunRequest{Argv: []string{"/bin/true"}})},
		call{name: "glovebox, 1+1 in a live context", prepare: value, do: value})
	if b.Serve == nil {
		return calls, nil
	}
	served, err := b.Serve.RunCode(ctx, "", line)
	if err != nil {
		return nil, fmt.Errorf("run %s over HTTP: %w", line, err)
	}
	b.served = served
	value = func(ctx context.Context) error {
		_, err := b.Serve.RunCode(ctx, served, "1+1")
		return err
	}
	return append(calls,
		call{name: nameLive, prepare: value, do: value},
		call{name: nameRested, prepare: rest, do: value}), nil
}

// rest waits until unused sandboxes are paused.
func rest(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(restTime):
		return nil
	}
}

// restTime is longer than the time after which an unused sandbox is paused.
const restTime = 500 * time.Millisecond

// findPython returns the Python that sandboxes with this machine's system also
// use. The first python3 in PATH may be a wrapper script.
func findPython() string {
	for _, path := range []string{"/usr/local/bin/python3", "/usr/bin/python3"} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	found, err := exec.LookPath("python3")
	if err != nil {
		return ""
	}
	return found
}

// docker returns the calls of Docker. It pulls no image.
func (b *bench) docker(ctx context.Context) []call {
	docker, err := exec.LookPath("docker")
	if err == nil {
		err = program(docker, "image", "inspect", b.Image)(ctx)
	}
	if err != nil {
		b.note("Docker is not measured: it is not installed, or has no image %s", b.Image)
		return nil
	}
	calls := []call{{name: nameDocker, do: b.dockerRun(line)}}
	out, err := exec.CommandContext(ctx, docker, "run", "-d", "--rm", "--network=none", b.Image, "sleep", "3600").Output()
	if err != nil {
		b.note("docker exec is not measured: %v", err)
		return calls
	}
	b.container = strings.TrimSpace(string(out))
	return append(calls, call{name: "docker exec", do: program(docker, "exec", b.container, "python3", "-c", line)})
}

// dockerRun runs a program in a new container.
func (b *bench) dockerRun(code string) func(context.Context) error {
	return program("docker", "run", "--rm", "--network=none", b.Image, "python3", "-c", code)
}

// dockerPlot returns a plot in a new container, if the image has the packages
// for it.
func (b *bench) dockerPlot(ctx context.Context) []call {
	if err := b.dockerRun(heavy)(ctx); err != nil {
		b.note("plots with docker run are not measured: image %s has no pandas and matplotlib", b.Image)
		return nil
	}
	return []call{{name: nameDockerPlot, do: b.dockerRun(plot)}}
}

func program(argv ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		return exec.CommandContext(ctx, argv[0], argv[1:]...).Run()
	}
}

// run runs a program to its end, and returns the sandbox's ID.
func (b *bench) run(ctx context.Context, s Sandboxer, req sandbox.RunRequest) (id string, err error) {
	r, err := s.Start(ctx, principal, req)
	if err != nil {
		return "", err
	}
	r, err = s.Wait(ctx, principal, r.ID)
	if err == nil && r.Verdict.Code != sandbox.OK {
		err = fmt.Errorf("the run ended as %s: %s", r.Verdict.Code, r.Verdict.Cause)
	}
	return r.SandboxID, err
}

// keep registers a sandbox to be stopped at the end.
func (b *bench) keep(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made = append(b.made, id)
}

// inTurn measures calls, one of each in every round.
func (b *bench) inTurn(ctx context.Context, calls []call) error {
	b.Say("single calls, %d of each", b.Rounds)
	took := make([][]time.Duration, len(calls))
	for range b.Rounds {
		for i, c := range calls {
			if c.prepare != nil {
				if err := c.prepare(ctx); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
			began := time.Now()
			if err := c.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			took[i] = append(took[i], time.Since(began))
			if c.after != nil {
				if err := c.after(ctx); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
		}
	}
	for i, c := range calls {
		b.report.Figures = append(b.report.Figures, figure(c.name, took[i]))
	}
	return nil
}

// one runs a line in a new sandbox, and then stops the sandbox.
func (b *bench) one(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	id, err := b.run(ctx, b.Warm, sandbox.RunRequest{Code: line, Context: sandbox.DefaultContext})
	took := time.Since(began)
	if id != "" {
		err = errors.Join(err, b.Warm.Stop(context.WithoutCancel(ctx), principal, id))
	}
	return took, err
}

// A way is one method of running a line in a new sandbox or container.
type way struct {
	prefix string // of the figure's name
	ready  func(ctx context.Context) error
	one    func(ctx context.Context) (time.Duration, error)
}

// oneOfDocker runs a line in a new container.
func (b *bench) oneOfDocker(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := b.dockerRun(line)(ctx)
	return time.Since(began), err
}

// idle measures the memory of idle sandboxes. Each has an interpreter that has
// run a line.
func (b *bench) idle(ctx context.Context) error {
	b.Say("memory of %d sandboxes", b.Idle)
	var ids []string
	for range b.Idle {
		id, err := b.run(ctx, b.Cold, sandbox.RunRequest{Code: line, Context: sandbox.DefaultContext})
		if id != "" {
			defer func() {
				if err := b.Cold.Stop(context.WithoutCancel(ctx), principal, id); err != nil {
					b.note("stop sandbox %s: %v", id, err)
				}
			}()
		}
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	time.Sleep(time.Second) // until they are paused
	f := Figure{Name: fmt.Sprintf("memory of each of %d idle sandboxes with Python", b.Idle), N: b.Idle, Goal: &idleGoal}
	for _, id := range ids {
		size, ok := memoryOf(id)
		if !ok {
			b.note("the memory of sandboxes cannot be measured here")
			return nil
		}
		f.Memory += size / int64(len(ids))
	}
	b.report.Figures = append(b.report.Figures, f)
	return nil
}

// burst measures n concurrent callers.
func (b *bench) burst(ctx context.Context, n int, w way) error {
	b.Say("%s%d callers at once", w.prefix, n)
	if w.ready != nil {
		if err := w.ready(ctx); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var took []time.Duration
	var failed []error
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			d, err := w.one(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return
			}
			took = append(took, d)
		})
	}
	wg.Wait()
	f := figure(w.prefix+nameBurst(n), took)
	f.N, f.Failed, f.Total = n, len(failed), millis(time.Since(began))
	b.report.Figures = append(b.report.Figures, f)
	if len(failed) > 0 {
		b.note("%d of %d callers failed; the first: %v", len(failed), n, failed[0])
	}
	return ctx.Err()
}

// sustain measures eight callers that run continuously, for the same time in
// each way. The ways take turns of a minute, so that other load on the machine
// affects all equally.
func (b *bench) sustain(ctx context.Context, ways []way) error {
	turns := int((b.Sustain + time.Minute - 1) / time.Minute)
	of := make([]stretch, len(ways))
	before := ownMemory()
	for range turns {
		for i, w := range ways {
			b.Say("%seight callers for %v", w.prefix, b.Sustain/time.Duration(turns))
			of[i].goOn(ctx, w, b.Sustain/time.Duration(turns))
		}
	}
	for i, w := range ways {
		f := figure(w.prefix+nameSustained, of[i].took)
		f.Failed, f.PerSecond = of[i].failed, float64(len(of[i].took))/of[i].lasted.Seconds()
		if w.prefix == "" {
			f.Grown = ownMemory() - before
		}
		b.report.Figures = append(b.report.Figures, f)
		if of[i].failed > 0 {
			b.note("%s%d calls failed; the first: %v", w.prefix, of[i].failed, of[i].first)
		}
	}
	return ctx.Err()
}

// A stretch is the sum of the results of eight callers.
type stretch struct {
	took   []time.Duration
	lasted time.Duration
	failed int
	first  error // first error
}

func (s *stretch) goOn(ctx context.Context, w way, d time.Duration) {
	until, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for range 8 {
		wg.Go(func() {
			for until.Err() == nil {
				took, err := w.one(ctx)
				mu.Lock()
				if err == nil {
					s.took = append(s.took, took)
				} else if s.failed++; s.first == nil {
					s.first = err
				}
				mu.Unlock()
				if err != nil && ctx.Err() != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	s.lasted += time.Since(began)
}

// cleanUp stops the remaining sandboxes and the container.
func (b *bench) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, id := range b.made {
		if err := b.Warm.Stop(ctx, principal, id); err != nil {
			b.note("stop sandbox %s: %v", id, err)
		}
	}
	if b.served != "" {
		if err := b.Serve.Stop(ctx, b.served); err != nil {
			b.note("stop sandbox %s: %v", b.served, err)
		}
	}
	if b.container != "" {
		if err := exec.CommandContext(ctx, "docker", "rm", "-f", b.container).Run(); err != nil {
			b.note("remove container %s: %v", b.container, err)
		}
	}
}
