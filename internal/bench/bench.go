// Package bench measures what running a line of untrusted code costs on this
// machine, by Glovebox and by what else is there, side by side in one run: for
// anybody who wants to check what is claimed.
//
// Single calls are measured in turn, one of each kind after the other, so that
// what else the machine does meets all alike. Figures are times from the call
// to its complete result. Nothing is compared with figures of another run.
//
// Only the command line imports this package. Sandboxes that it makes are
// stopped before [Run] returns.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Sandboxer is what is measured: the engine.
type Sandboxer interface {
	Start(ctx context.Context, p sandbox.Principal, req sandbox.RunRequest) (sandbox.Run, error)
	Wait(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	Stop(ctx context.Context, p sandbox.Principal, id string) error
}

// A Caller runs code as an MCP client does: in a live context of a sandbox, a
// fresh one if id is empty. It returns the sandbox.
type Caller interface {
	RunCode(ctx context.Context, id, code string) (sandboxID string, err error)
	Stop(ctx context.Context, id string) error
}

// Options say what to measure.
type Options struct {
	// Cold makes each sandbox when it is asked for; Warm keeps some ready.
	Cold, Warm Sandboxer
	// Ready waits until Warm has a sandbox ready.
	Ready func(ctx context.Context) error
	// Rounds is how often each single call is measured.
	Rounds int
	// Callers are numbers of callers at once, each of whom runs one program in
	// a fresh sandbox.
	Callers []int
	// Sustain is how long eight callers run one program after another, each in
	// a fresh sandbox; 0 leaves that out.
	Sustain time.Duration
	// Serve, if not nil, is asked over MCP and HTTP, and has the same sandboxes as
	// Warm.
	Serve Caller
	// Idle is how many sandboxes have their memory measured; 0 leaves that out.
	Idle int
	// Plots has plots measured, where bare Python can make them.
	Plots bool
	// Image is what Docker is measured with, if Docker is there and has it.
	Image string
	// Version is that of the program that is measured.
	Version string
	// Say is told what is being measured.
	Say func(format string, args ...any)
}

// A Report is what was measured.
type Report struct {
	Version string   `json:"version"`
	Machine Machine  `json:"machine"`
	Figures []Figure `json:"figures"`
	// Notes say what was left out, and why.
	Notes []string `json:"notes,omitempty"`
}

// A Machine says what it was measured on.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	// CPU is the processor's name, Memory in bytes, where they are known.
	CPU    string `json:"cpu,omitempty"`
	Memory int64  `json:"memory_bytes,omitempty"`
	// Load is what it was when it began, and LoadAfter in the end, as the system
	// counts it: the benchmark's own is in it.
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
		s += " and " + m.LoadAfter + " in the end"
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
	// Total is how long all took, where they ran at once; PerSecond how many
	// ended in each second, where they ran on and on.
	Total     float64 `json:"total_ms,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`
	// Memory is that of one sandbox that waits, in bytes. Grown is by how much
	// this process's own grew meanwhile.
	Memory int64 `json:"memory_bytes,omitempty"`
	Grown  int64 `json:"grown_bytes,omitempty"`
	// Goal is what it is to reach, nil if there is none, and Times how many
	// times better it is than docker run at the same.
	Goal  *Goal   `json:"goal,omitempty"`
	Times float64 `json:"times_docker_run,omitempty"`
}

// A call is one thing to measure. What prepares it, and what cleans up, is not
// counted.
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
	// plot is what an analysis begins with.
	plot = "import io, pandas, matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\n" +
		"plt.plot(pandas.Series([1, 3, 2]))\nplt.savefig(io.BytesIO())"
)

// Run measures. If ctx ends, what is measured is the report, with ctx's error.
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
	made      []string // sandboxes to be stopped in the end
	served    string   // of Serve, likewise
	container string   // of Docker, likewise
}

func (b *bench) note(format string, args ...any) {
	b.report.Notes = append(b.report.Notes, fmt.Sprintf(format, args...))
}

// calls returns what can be measured here.
func (b *bench) calls(ctx context.Context) ([]call, error) {
	var calls []call
	if python := findPython(); python != "" {
		calls = append(calls, call{name: "python3, without any sandbox", do: program(python, "-c", line)})
	} else {
		b.note("there is no python3 to compare with")
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
			b.note("plots are left out: %s has no pandas and matplotlib", python)
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
	// A sandbox rests soon after its last use, so what is called live is used
	// just before; how long waking takes is a figure of its own.
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

// rest waits until sandboxes that are not used rest.
func rest(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(restTime):
		return nil
	}
}

// restTime is longer than a sandbox is left awake for nothing.
const restTime = 500 * time.Millisecond

// findPython returns the Python that sandboxes with this machine's own system
// have too: the first of a PATH may be a script that looks for another.
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

// docker returns what can be measured of Docker: nothing is pulled for it.
func (b *bench) docker(ctx context.Context) []call {
	docker, err := exec.LookPath("docker")
	if err == nil {
		err = program(docker, "image", "inspect", b.Image)(ctx)
	}
	if err != nil {
		b.note("Docker is not compared with: it has no image %s here, or is not there", b.Image)
		return nil
	}
	calls := []call{{name: nameDocker, do: b.dockerRun(line)}}
	out, err := exec.CommandContext(ctx, docker, "run", "-d", "--rm", "--network=none", b.Image, "sleep", "3600").Output()
	if err != nil {
		b.note("docker exec is not compared with: %v", err)
		return calls
	}
	b.container = strings.TrimSpace(string(out))
	return append(calls, call{name: "docker exec", do: program(docker, "exec", b.container, "python3", "-c", line)})
}

// dockerRun runs a program in a fresh container.
func (b *bench) dockerRun(code string) func(context.Context) error {
	return program("docker", "run", "--rm", "--network=none", b.Image, "python3", "-c", code)
}

// dockerPlot returns a plot in a fresh container, where the image can make one.
func (b *bench) dockerPlot(ctx context.Context) []call {
	if err := b.dockerRun(heavy)(ctx); err != nil {
		b.note("plots by docker run are left out: image %s has no pandas and matplotlib", b.Image)
		return nil
	}
	return []call{{name: nameDockerPlot, do: b.dockerRun(plot)}}
}

func program(argv ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		return exec.CommandContext(ctx, argv[0], argv[1:]...).Run()
	}
}

// run runs a program to its end, and returns its sandbox.
func (b *bench) run(ctx context.Context, s Sandboxer, req sandbox.RunRequest) (id string, err error) {
	r, err := s.Start(ctx, principal, req)
	if err != nil {
		return "", err
	}
	r, err = s.Wait(ctx, principal, r.ID)
	if err == nil && r.Verdict.Code != sandbox.OK {
		err = fmt.Errorf("it ended as %s: %s", r.Verdict.Code, r.Verdict.Cause)
	}
	return r.SandboxID, err
}

// keep has a sandbox stopped in the end.
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

// one runs a line in a fresh sandbox, which is then stopped.
func (b *bench) one(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	id, err := b.run(ctx, b.Warm, sandbox.RunRequest{Code: line, Context: sandbox.DefaultContext})
	took := time.Since(began)
	if id != "" {
		err = errors.Join(err, b.Warm.Stop(context.WithoutCancel(ctx), principal, id))
	}
	return took, err
}

// A way is one way to run a line in something fresh.
type way struct {
	prefix string // of the figure's name
	ready  func(ctx context.Context) error
	one    func(ctx context.Context) (time.Duration, error)
}

// oneOfDocker runs a line in a fresh container.
func (b *bench) oneOfDocker(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := b.dockerRun(line)(ctx)
	return time.Since(began), err
}

// idle measures the memory of sandboxes that wait, each with an interpreter that
// ran a line.
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
	time.Sleep(time.Second) // they are let rest
	f := Figure{Name: fmt.Sprintf("memory of each of %d idle sandboxes with Python", b.Idle), N: b.Idle, Goal: &idleGoal}
	for _, id := range ids {
		size, ok := memoryOf(id)
		if !ok {
			b.note("the memory of sandboxes cannot be measured from here")
			return nil
		}
		f.Memory += size / int64(len(ids))
	}
	b.report.Figures = append(b.report.Figures, f)
	return nil
}

// burst has n callers at once.
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

// sustain has eight callers that go on and on, in each way for as long: in turn,
// a minute at a time, so that what else the machine does meets all alike.
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

// A stretch is what eight callers did, all in all.
type stretch struct {
	took   []time.Duration
	lasted time.Duration
	failed int
	first  error // of those that failed
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

// cleanUp stops what is still there.
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

func figure(name string, took []time.Duration) Figure {
	f := Figure{Name: name, N: len(took)}
	if len(took) > 0 {
		slices.Sort(took)
		at := func(q float64) float64 { return millis(took[int(q*float64(len(took)-1)+0.5)]) }
		f.P50, f.P99 = at(0.50), at(0.99)
	}
	return f
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
