//go:build !nogvisor

package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The figures of a sandbox as its user meets it: through engine, driver and
// guest. What it is compared with is measured in turn with it, one for one, as
// only ratios taken in one run mean anything on a shared machine. No figure
// makes a test fail.

// benchSystem is a system with the embedded sandbox, as the defaults have it.
func benchSystem(b *testing.B) *System {
	b.Helper()
	return benchSystemWith(b, "")
}

// benchSystemWith is one with the runners of a directory, too.
func benchSystemWith(b *testing.B, runners string) *System {
	b.Helper()
	c := config.Default(os.Getenv)
	c.Languages.Runners = runners
	c.Driver, c.StateDir = "gvisor", b.TempDir()
	c.Sandbox.AllowUnenforced = []sandbox.ControlName{sandbox.ControlCPU, sandbox.ControlMemory}
	sys, err := Open(b.Context(), Options{Config: c, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := sys.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	if err := sys.driver.Probe(b.Context()); err != nil {
		b.Skipf("gvisor does not work here: %v", err)
	}
	return sys
}

// A series is a list of measured times.
type series []time.Duration

func (s series) at(quantile float64) float64 {
	s = slices.Sorted(slices.Values(s))
	return float64(s[int(quantile*float64(len(s)-1)+0.5)]) / float64(time.Millisecond)
}

// report puts p50 and p99 of each series beside the benchmark, and how many
// times the first one's median each other is.
func report(b *testing.B, names []string, all ...series) {
	b.ReportMetric(0, "ns/op") // the sum of all of them says nothing
	for i, s := range all {
		if len(s) == 0 {
			continue
		}
		b.ReportMetric(s.at(0.50), names[i]+"-p50-ms")
		b.ReportMetric(s.at(0.99), names[i]+"-p99-ms")
		if i > 0 {
			b.ReportMetric(all[0].at(0.50)/s.at(0.50), "x-"+names[i])
		}
	}
}

// reportBar puts beside a figure what is asked of its median. It is asked in
// milliseconds on a machine where bare Python takes askedPython to its first
// output; here it is as much more as that takes longer, which is python.
func reportBar(b *testing.B, name string, asked time.Duration, python series) {
	const askedPython = 11 * time.Millisecond
	b.ReportMetric(float64(asked)/float64(askedPython)*python.at(0.50), name+"-bar-ms")
}

// What is asked of the medians.
const (
	askedCold    = 150 * time.Millisecond
	askedCommand = 6 * time.Millisecond
	askedHTTP    = 8 * time.Millisecond
	askedIdle    = 40 // MiB
)

// firstOutput starts a program and returns the time to its first output.
func firstOutput(b *testing.B, args ...string) time.Duration {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), args[0], args[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		b.Fatalf("%v: no output: %v", args, err)
	}
	took := time.Since(began)
	if err := cmd.Wait(); err != nil {
		b.Fatalf("%v: %v", args, err)
	}
	return took
}

// dockerImage is what docker is measured with, if it is there already: nothing
// is pulled for a benchmark.
const dockerImage = "python:3-slim"

func haveDocker(b *testing.B) bool {
	return exec.CommandContext(b.Context(), "docker", "image", "inspect", dockerImage).Run() == nil
}

// hostPython returns the Python that sandboxes with the image host find.
func hostPython(b *testing.B) string {
	b.Helper()
	for _, path := range []string{"/usr/local/bin/python3", "/usr/bin/python3"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	b.Skip("no python3 where sandboxes look")
	return ""
}

// BenchmarkColdSandbox is from nothing to the first output of Python.
func BenchmarkColdSandbox(b *testing.B) {
	sys := benchSystem(b)
	docker, python := haveDocker(b), hostPython(b)
	var ours, bare, theirs series
	for b.Loop() {
		began := time.Now()
		run, err := sys.Engine.Start(b.Context(), sandbox.Local, sandbox.RunRequest{Code: "print(1)", Language: "python"})
		if err != nil {
			b.Fatal(err)
		}
		took := time.Duration(0)
		err = sys.Engine.Follow(b.Context(), sandbox.Local, run.ID, func(sandbox.StreamName, []byte) error {
			if took == 0 {
				took = time.Since(began)
			}
			return nil
		})
		if err != nil || took == 0 {
			b.Fatalf("no output: %v", err)
		}
		ours = append(ours, took)
		if err := sys.Engine.Stop(b.Context(), sandbox.Local, run.SandboxID); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, firstOutput(b, python, "-c", "print(1)"))
		if docker {
			theirs = append(theirs, firstOutput(b, "docker", "run", "--rm", "--network", "none", dockerImage, "python3", "-c", "print(1)"))
		}
	}
	report(b, []string{"glovebox", "bare", "docker-run"}, ours, bare, theirs)
	reportBar(b, "glovebox", askedCold, bare)
}

// BenchmarkCommand is a command in a sandbox that runs, from request to
// verdict.
func BenchmarkCommand(b *testing.B) {
	sys := benchSystem(b)
	box, err := sys.Engine.Create(b.Context(), sandbox.Local, sandbox.CreateRequest{})
	if err != nil {
		b.Fatal(err)
	}
	container := ""
	if haveDocker(b) {
		out, err := exec.CommandContext(b.Context(), "docker", "run", "-d", "--rm", "--network", "none", dockerImage, "sleep", "600").Output()
		if err != nil {
			b.Fatal(err)
		}
		container = string(bytes.TrimSpace(out))
		b.Cleanup(func() { _ = exec.CommandContext(context.Background(), "docker", "rm", "-f", container).Run() })
	}
	python := hostPython(b)
	var ours, bare, theirs, barePython series
	for b.Loop() {
		began := time.Now()
		run, err := sys.Engine.Start(b.Context(), sandbox.Local, sandbox.RunRequest{SandboxID: box.ID, Argv: []string{"/bin/true"}})
		if err == nil {
			run, err = sys.Engine.Wait(b.Context(), sandbox.Local, run.ID)
		}
		if err != nil || run.Verdict.Code != sandbox.OK {
			b.Fatalf("%+v, %v", run.Verdict, err)
		}
		ours = append(ours, time.Since(began))

		began = time.Now()
		if err := exec.CommandContext(b.Context(), "/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(began))
		barePython = append(barePython, firstOutput(b, python, "-c", "print(1)"))

		if container != "" {
			began = time.Now()
			if err := exec.CommandContext(b.Context(), "docker", "exec", container, "/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
			theirs = append(theirs, time.Since(began))
		}
	}
	report(b, []string{"glovebox", "bare", "docker-exec"}, ours, bare, theirs)
	reportBar(b, "glovebox", askedCommand, barePython)
}

// BenchmarkIdle is what a sandbox costs in which nothing is run: memory as
// proportional set size of all its processes, and CPU over some seconds; then
// memory with a Python that waits for input. It is measured of one alone, which
// bears all of the program's text, and of one of ten, which share it.
func BenchmarkIdle(b *testing.B) {
	const many = 10
	sys := benchSystem(b)
	for b.Loop() {
		boxes := []sandbox.Sandbox{}
		for range many {
			box, err := sys.Engine.Create(b.Context(), sandbox.Local, sandbox.CreateRequest{})
			if err != nil {
				b.Fatal(err)
			}
			boxes = append(boxes, box)
			if len(boxes) == 1 {
				time.Sleep(time.Second) // the engine lets it rest
				const watched = 3 * time.Second
				pids := processesOf(b, box.ID)
				before := cpuOf(b, pids)
				time.Sleep(watched)
				used := cpuOf(b, pids) - before
				b.ReportMetric(float64(used)/float64(watched)*100, "cpu-%")
				b.ReportMetric(pssOfAll(b, boxes), "pss-alone-MiB")
			}
		}
		time.Sleep(time.Second)
		b.ReportMetric(pssOfAll(b, boxes), "pss-of-ten-MiB")
		for _, box := range boxes {
			run, err := sys.Engine.Start(b.Context(), sandbox.Local, sandbox.RunRequest{
				SandboxID: box.ID, Code: "print(1)\ninput()", Language: "python", KeepStdin: true,
			})
			if err != nil {
				b.Fatal(err)
			}
			for {
				out, err := sys.Engine.Output(b.Context(), sandbox.Local, run.ID, 0)
				if err != nil {
					b.Fatal(err)
				}
				if out.Stdout != "" {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		b.ReportMetric(pssOfAll(b, boxes), "pss-of-ten-with-python-MiB")
		for _, box := range boxes {
			if err := sys.Engine.Stop(b.Context(), sandbox.Local, box.ID); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(askedIdle, "pss-of-ten-with-python-bar-MiB")
	b.ReportMetric(0, "ns/op")
}

// pssOfAll returns the proportional set size of a sandbox's processes, on
// average over boxes, in MiB.
func pssOfAll(b *testing.B, boxes []sandbox.Sandbox) float64 {
	b.Helper()
	var total int64
	for _, box := range boxes {
		total += pssOf(b, processesOf(b, box.ID))
	}
	return float64(total) / float64(len(boxes)) / (1 << 20)
}

// processesOf returns the processes on this machine that have the sandbox's
// name on their command line, and all below them.
func processesOf(b *testing.B, id string) []int {
	b.Helper()
	parents := map[int]int{}
	var found []int
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		b.Fatal(err)
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // gone meanwhile
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		parents[pid], _ = strconv.Atoi(fields[1])
		if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && bytes.Contains(line, []byte(id)) {
			found = append(found, pid)
		}
	}
	for grown := true; grown; {
		grown = false
		for pid, parent := range parents {
			if slices.Contains(found, parent) && !slices.Contains(found, pid) {
				found, grown = append(found, pid), true
			}
		}
	}
	if len(found) == 0 {
		b.Fatalf("no process of %s found", id)
	}
	return found
}

func pssOf(b *testing.B, pids []int) (total int64) {
	b.Helper()
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // gone meanwhile
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				kib, err := strconv.ParseInt(f[1], 10, 64)
				if err != nil {
					b.Fatal(err)
				}
				total += kib << 10
			}
		}
	}
	return total
}

// cpuOf returns the processor time that the processes have used.
func cpuOf(b *testing.B, pids []int) time.Duration {
	b.Helper()
	var ticks int64
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // gone meanwhile
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, field := range f[11:13] { // user and system time
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100 // Linux shows hundredths
}
