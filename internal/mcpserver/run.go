package mcpserver

import (
	"context"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// defaultOutput is the most output of a run that a result has if its caller asks
// for no other number, in bytes. The clients of models cut longer results.
const defaultOutput = 8 << 10

// taskAfter is how long a call waits for its run before the call becomes a task.
const taskAfter = 2 * time.Second

// runOutput is the output schema of all tools that return a run. It has only the
// fields that programs use most, because the schemas of all tools share a budget. It
// requires none, because it also holds for a [answer.Problem].
const runOutput = `{"type":"object","properties":{` +
	`"run_id":{"type":"string"},"sandbox_id":{"type":"string"},"status":{"type":"string"},` +
	`"verdict":{"type":"object"},"exit_code":{"type":"integer"},` +
	`"stdout":{"type":"string"},"stderr":{"type":"string"},"results":{"type":"array"}}}`

// runArgs are the arguments that all tools which start a run have in common.
type runArgs struct {
	SandboxID string            `json:"sandbox_id,omitempty" jsonschema:"default: a new one, kept while in use"`
	Timeout   int64             `json:"timeout_seconds,omitempty" jsonschema:"default 30"`
	Wait      *int              `json:"wait_seconds,omitempty" jsonschema:"return after this long with what there is; the run goes on and takes send_input"`
	Env       map[string]string `json:"env,omitempty"`
	Budget    int               `json:"output_bytes,omitempty" jsonschema:"most output to return; default 8192"`
	Image     string            `json:"image,omitempty" jsonschema:"only without sandbox_id"`
	Workspace string            `json:"workspace,omitempty"`
	Network   sandbox.Network   `json:"network,omitempty"`
}

// runLimits are the limits of runArgs.
var runLimits = limits{
	"timeout_seconds": atLeast(1),
	"wait_seconds":    between(0, 600),
	"output_bytes":    between(256, 1048576),
}

// start starts a run and waits for it for the time that the caller specified, or
// for Options.Patience. If the client cancels the call, the run ends.
func (s *Server) start(ctx context.Context, c call, r sandbox.RunRequest, a runArgs) (*mcp.CallToolResult, error) {
	if err := onlyNew(a.SandboxID, a.Image, a.Network); err != nil {
		return nil, err
	}
	if a.SandboxID != "" && a.Workspace != "" {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "workspace: %q is for a new sandbox, but sandbox_id names one that exists", a.Workspace),
			"leave out one of the two")
	}
	r.SandboxID = a.SandboxID
	r.New.Image, r.New.Network, r.New.Workspace = a.Image, a.Network, a.Workspace
	r.Env = a.Env
	timeout, err := seconds("timeout_seconds", a.Timeout)
	if err != nil {
		return nil, err
	}
	r.Timeout = timeout
	// A caller that sets wait_seconds may come back with input, so keep stdin
	// open. In all other runs the program reads end of file, and does not hang.
	r.KeepStdin = a.Wait != nil && r.Stdin == nil

	told := func() {}
	if r.SandboxID == "" {
		r.New.Progress, told = s.reportFetch(ctx, c, a.Image)
	}
	run, err := s.engine.Start(ctx, c.principal, r)
	told()
	if err != nil {
		return nil, err
	}
	c.facts.ran(run)
	if r.SandboxID == "" {
		s.visits.Note(c.visitor(), run.SandboxID, run.ID)
	}
	wait := s.opts.Patience
	if a.Wait != nil {
		wait = time.Duration(*a.Wait) * time.Second
	}
	return s.answer(ctx, c, run, wait, a.Wait == nil, a.Budget)
}

// answer waits for a run for at most d and renders it. If the client supports
// tasks and did not specify a wait, a longer run becomes a task.
func (s *Server) answer(ctx context.Context, c call, run sandbox.Run, d time.Duration, patient bool, budget int) (*mcp.CallToolResult, error) {
	slot := task.SlotOf(ctx)
	if slot != nil && patient {
		d = taskAfter
	}
	run, err := s.finish(ctx, c, run.ID, d)
	if err != nil {
		return nil, err
	}
	c.facts.ran(run)
	if slot != nil && patient && run.Status == sandbox.RunRunning {
		slot.Becomes(run.ID, run.Started)
		return &mcp.CallToolResult{}, nil // task.WithSlot replaces it by the task
	}
	return s.show(ctx, c, run, budget)
}

// onlyNew refuses arguments for a new sandbox if the call names an existing
// sandbox.
func onlyNew(id, image string, network sandbox.Network) error {
	for _, a := range []struct{ name, value string }{{"image", image}, {"network", string(network)}} {
		if id != "" && a.value != "" {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: %q is for a new sandbox, but sandbox_id names one that exists", a.name, a.value),
				"leave out one of the two")
		}
	}
	return nil
}

// finish waits for a run for at most d. If waiting fails or the client
// disconnects, it stops the run.
func (s *Server) finish(ctx context.Context, c call, runID string, d time.Duration) (sandbox.Run, error) {
	run, err := s.wait(ctx, c, runID, d)
	if err == nil {
		return run, nil
	}
	// The client is gone, or will not learn the run's id from this call.
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transport.StopTimeout)
	defer cancel()
	stopped, stopErr := s.engine.StopRun(stopCtx, c.principal, run.ID)
	if ctx.Err() == nil || stopErr != nil {
		return sandbox.Run{}, errors.Join(err, stopErr)
	}
	if errors.Is(context.Cause(ctx), transport.ErrShutdown) && stopped.Verdict.Code == sandbox.Cancelled {
		stopped.Verdict.Cause = transport.ErrShutdown.Error()
	}
	return stopped, nil
}

// wait waits for a run for at most d, and reports progress to the client. It
// returns nil if the run finished or d is over, and ctx's error if ctx ended.
func (s *Server) wait(ctx context.Context, c call, runID string, d time.Duration) (sandbox.Run, error) {
	waitCtx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	stop := s.reportProgress(waitCtx, c, runID)
	defer stop()
	run, err := s.engine.Wait(waitCtx, c.principal, runID)
	if err == nil {
		return run, nil
	}
	run.ID = runID // set in any case, so that the caller can stop the run
	if ctx.Err() != nil {
		return run, ctx.Err()
	}
	if waitCtx.Err() != nil && errors.Is(err, waitCtx.Err()) {
		return run, nil
	}
	return run, err
}

// show renders a run with as much of its output as fits into budget bytes; zero
// is defaultOutput.
func (s *Server) show(ctx context.Context, c call, run sandbox.Run, budget int) (*mcp.CallToolResult, error) {
	if budget == 0 {
		budget = defaultOutput
	}
	// The client may be gone. A cancelled call still needs an answer, so read
	// with a context of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transport.StopTimeout)
	defer cancel()
	c.facts.ran(run)
	out, err := s.engine.Output(ctx, c.principal, run.ID, budget)
	if err != nil {
		return nil, err
	}
	res := answer.NewRun(run, out, time.Now())
	var results sandbox.Results
	if run.Context != nil || run.Changes != nil && len(run.Changes.Files) > 0 {
		if results, err = s.engine.Results(ctx, c.principal, run.ID); err != nil {
			return nil, err
		}
		res.AddResults(run, results, budget)
	}
	if missesState(run, results.Error, out.Stderr) && run.Verdict.NextStep == "" {
		res.Verdict.NextStep = s.visits.Hint(c.visitor(), run, func(id string) bool {
			sb, err := s.engine.Get(ctx, c.principal, id)
			return err == nil && sb.State != sandbox.Stopped
		})
	}
	var link func(string) string
	if s.opts.Files != nil && run.Changes != nil {
		link, _ = s.opts.Files.FileLinks(ctx, c.principal, run.SandboxID) // without them, the answer has no URLs
	}
	res.AddChanges(run, results.Files, link)
	return res.Render()
}

// missesState reports whether a run failed for a variable or a file that does not
// exist. failure is the exception that ended it, or nil.
func missesState(run sandbox.Run, failure *sandbox.RunError, stderr string) bool {
	if run.Status != sandbox.RunFinished || run.Verdict.Code != sandbox.Failed {
		return false
	}
	if failure != nil {
		return failure.MissesState()
	}
	return sandbox.MissesFile(stderr)
}
