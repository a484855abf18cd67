//go:build !nogvisor

package app

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// benchHTTP serves the embedded sandbox over HTTP and returns a client of it.
func benchHTTP(b *testing.B) (*System, caller) {
	b.Helper()
	sys := benchSystem(b)
	sys.opts.Config.Server.Listen = "127.0.0.1:0"
	sys.opts.Config.Server.RateLimit = 1e6 // this is one principal
	text, err := sys.FirstToken(b.Context(), false)
	if err != nil {
		b.Fatal(err)
	}
	ctx, done := serveContext(b)
	ln, err := sys.Listen(ctx)
	if err != nil {
		b.Fatal(err)
	}
	go func() { done <- sys.ServeHTTP(ctx, ln, func() error { return nil }) }()
	transport := &http.Transport{MaxIdleConnsPerHost: benchClients}
	b.Cleanup(transport.CloseIdleConnections)
	return sys, caller{b, "http://" + ln.MCP.Addr().String(), text, &http.Client{Transport: transport}}
}

const benchClients = 50

// BenchmarkCommandOverHTTP is run_command of /bin/true in a sandbox that runs,
// from request to answer: one client after itself, and fifty at once. Any
// answer that is not a success ends it.
func BenchmarkCommandOverHTTP(b *testing.B) {
	sys, c := benchHTTP(b)
	id, err := sys.auth.Verify(b.Context(), c.token)
	if err != nil {
		b.Fatal(err)
	}
	// Ten sandboxes are used by five clients each.
	var boxes [10]sandbox.Sandbox
	for i := range boxes {
		if boxes[i], err = sys.Engine.Create(b.Context(), id.Principal, sandbox.CreateRequest{}); err != nil {
			b.Fatal(err)
		}
	}
	call := func(c caller, box string) time.Duration {
		began := time.Now()
		answer := c.tool("run_command", map[string]any{"command": "/bin/true", "sandbox_id": box})
		took := time.Since(began)
		if !strings.Contains(answer, `"code":"ok"`) {
			b.Errorf("answer: %s", answer)
		}
		return took
	}
	b.Run("one", func(b *testing.B) {
		python := hostPython(b)
		var took, engine, argv, barePython series
		run := func(r sandbox.RunRequest) time.Duration {
			began := time.Now()
			r.SandboxID = boxes[0].ID
			run, err := sys.Engine.Start(b.Context(), id.Principal, r)
			if err == nil {
				run, err = sys.Engine.Wait(b.Context(), id.Principal, run.ID)
			}
			if err != nil || run.Verdict.Code != sandbox.OK {
				b.Fatalf("%+v, %v", run.Verdict, err)
			}
			return time.Since(began)
		}
		for b.Loop() {
			took = append(took, call(c, boxes[0].ID))
			engine = append(engine, run(sandbox.RunRequest{Commands: []string{"/bin/true"}}))
			argv = append(argv, run(sandbox.RunRequest{Argv: []string{"/bin/true"}}))
			barePython = append(barePython, firstOutput(b, python, "-c", "print(1)"))
		}
		report(b, []string{"run_command", "engine", "no-shell"}, took, engine, argv)
		reportBar(b, "run_command", askedHTTP, barePython)
	})
	b.Run("fifty", func(b *testing.B) {
		var mu sync.Mutex
		var took series
		calls, began := 0, time.Now()
		for b.Loop() {
			var wg sync.WaitGroup
			for i := range benchClients {
				wg.Go(func() {
					d := call(c, boxes[i%len(boxes)].ID)
					mu.Lock()
					defer mu.Unlock()
					took = append(took, d)
				})
			}
			wg.Wait()
			calls += benchClients
		}
		perSecond := float64(calls) / time.Since(began).Seconds()
		report(b, []string{"run_command"}, took)
		b.ReportMetric(perSecond, "calls/s")
	})
}
