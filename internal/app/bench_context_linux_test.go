//go:build !nogvisor

package app

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// What is asked of the medians of contexts, and of their output.
const (
	askedValue     = 2 * time.Millisecond
	askedValueHTTP = 5 * time.Millisecond
	askedPlot      = 150 * time.Millisecond
	askedOutput    = 50 // MB/s
)

const plotCode = "import numpy, pandas, matplotlib.pyplot as plt\nplt.plot(numpy.arange(10))\nplt.show()"

// inContext runs code in a context of a sandbox and returns how long that took,
// from request to end.
func inContext(b *testing.B, sys *System, p sandbox.Principal, box, name, code string) (sandbox.Run, time.Duration) {
	b.Helper()
	began := time.Now()
	run, err := sys.Engine.Start(b.Context(), p, sandbox.RunRequest{SandboxID: box, Context: name, Code: code, Timeout: time.Minute})
	if err == nil {
		run, err = sys.Engine.Wait(b.Context(), p, run.ID)
	}
	if err != nil || run.Verdict.Code != sandbox.OK {
		b.Fatalf("%+v, %v", run.Verdict, err)
	}
	return run, time.Since(began)
}

// BenchmarkContextValue is 1+1 in a live interpreter: through engine and guest,
// and as a tool over HTTP.
func BenchmarkContextValue(b *testing.B) {
	sys, c := benchHTTP(b)
	python := hostPython(b)
	id, err := sys.auth.Verify(b.Context(), c.token)
	if err != nil {
		b.Fatal(err)
	}
	box, err := sys.Engine.Create(b.Context(), id.Principal, sandbox.CreateRequest{})
	if err != nil {
		b.Fatal(err)
	}
	for range 20 { // what is used often is warm
		inContext(b, sys, id.Principal, box.ID, "default", "1+1")
	}
	var engine, http, bare series
	for b.Loop() {
		_, took := inContext(b, sys, id.Principal, box.ID, "default", "1+1")
		engine = append(engine, took)
		began := time.Now()
		answer := c.tool("run_code", map[string]any{"code": "1+1", "sandbox_id": box.ID})
		http = append(http, time.Since(began))
		if !strings.Contains(answer, `"code":"ok"`) {
			b.Fatal(answer)
		}
		bare = append(bare, firstOutput(b, python, "-c", "print(1)"))
	}
	report(b, []string{"http", "engine"}, http, engine)
	reportBar(b, "engine", askedValue, bare)
	reportBar(b, "http", askedValueHTTP, bare)
}

// BenchmarkContextPlot is the first plot of a context that imported ahead what
// it needs, beside that of one which did not.
func BenchmarkContextPlot(b *testing.B) {
	python := hostPython(b)
	if exec.CommandContext(b.Context(), python, "-c", "import numpy, pandas, matplotlib").Run() != nil {
		b.Skip("numpy, pandas and matplotlib are not here")
	}
	dir := b.TempDir()
	const warm = "language: warm\nextension: py\nkernel: python\nprepare: [numpy, pandas, matplotlib.pyplot]\nvariants: [{command: [python3, '{file}']}]\n"
	if err := os.WriteFile(filepath.Join(dir, "warm.yaml"), []byte(warm), 0o600); err != nil {
		b.Fatal(err)
	}
	sys := benchSystemWith(b, dir)
	var ahead, fresh, bare series
	for b.Loop() {
		for language, s := range map[string]*series{"warm": &ahead, "python": &fresh} {
			box, err := sys.Engine.Create(b.Context(), sandbox.Local, sandbox.CreateRequest{})
			if err != nil {
				b.Fatal(err)
			}
			run := func(code string) {
				r, err := sys.Engine.Start(b.Context(), sandbox.Local, sandbox.RunRequest{
					SandboxID: box.ID, Context: "plots", Language: language, Code: code, Timeout: time.Minute,
				})
				if err == nil {
					r, err = sys.Engine.Wait(b.Context(), sandbox.Local, r.ID)
				}
				if err != nil || r.Verdict.Code != sandbox.OK {
					b.Fatalf("%+v, %v", r.Verdict, err)
				}
			}
			run("1")
			began := time.Now()
			run(plotCode)
			*s = append(*s, time.Since(began))
			if err := sys.Engine.Stop(b.Context(), sandbox.Local, box.ID); err != nil {
				b.Fatal(err)
			}
		}
		bare = append(bare, firstOutput(b, python, "-c", "print(1)"))
	}
	report(b, []string{"fresh", "ahead"}, fresh, ahead)
	reportBar(b, "ahead", askedPlot, bare)
}

// BenchmarkContextOutput is 10 MB printed in a context, kept whole.
func BenchmarkContextOutput(b *testing.B) {
	sys := benchSystem(b)
	box, err := sys.Engine.Create(b.Context(), sandbox.Local, sandbox.CreateRequest{})
	if err != nil {
		b.Fatal(err)
	}
	const size = 10_000_000
	inContext(b, sys, sandbox.Local, box.ID, "default", "1")
	var took series
	for b.Loop() {
		run, d := inContext(b, sys, sandbox.Local, box.ID, "default", "print('x' * 9_999_999)")
		took = append(took, d)
		_, total, err := sys.Engine.ReadOutput(b.Context(), sandbox.Local, run.ID, sandbox.Stdout, 0, 0)
		if err != nil || total != size {
			b.Fatalf("%d bytes, %v", total, err)
		}
	}
	report(b, []string{"print"}, took)
	b.ReportMetric(size/1e6/(took.at(0.5)/1000), "MB/s")
	b.ReportMetric(askedOutput, "asked-MB/s")
}
