package mcpserver

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/client"
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
// requires none, because it also holds for a [sandbox.Problem].
const runOutput = `{"type":"object","properties":{` +
	`"run_id":{"type":"string"},"sandbox_id":{"type":"string"},"status":{"type":"string"},` +
	`"verdict":{"type":"object"},"exit_code":{"type":"integer"},` +
	`"stdout":{"type":"string"},"stderr":{"type":"string"},"results":{"type":"array"}}}`

// runArgs are the arguments that all tools which start a run have in common.
type runArgs struct {
	SandboxID string            `json:"sandbox_id,omitempty" jsonschema:"default: a new one, kept while in use"`
	Timeout   *int64            `json:"timeout_seconds,omitempty" jsonschema:"default 30; 0: as long as the sandbox"`
	Wait      *int              `json:"wait_seconds,omitempty" jsonschema:"return after this; the run goes on and takes send_input"`
	Env       map[string]string `json:"env,omitempty"`
	Budget    int               `json:"output_bytes,omitempty" jsonschema:"default 8192"`
	Image     string            `json:"image,omitempty" jsonschema:"only without sandbox_id"`
	Workspace string            `json:"workspace,omitempty"`
	Network   sandbox.Network   `json:"network,omitempty"`
	Key       *string           `json:"idempotency_key,omitempty" jsonschema:"same key, same call: same run"`
}

// runLimits are the limits of runArgs.
var runLimits = limits{
	"timeout_seconds": atLeast(0),
	"wait_seconds":    between(0, 600),
	"output_bytes":    between(256, 1048576),
}

// timeout sets the timeout of a run.
func (a runArgs) timeout(r *sandbox.RunRequest) (err error) {
	switch {
	case a.Timeout == nil:
	case *a.Timeout == 0:
		r.Timeout = sandbox.Forever
	default:
		r.Timeout, err = seconds("timeout_seconds", *a.Timeout)
	}
	return err
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
	r.Env, r.Plots = a.Env, true
	if r.Service != nil {
		r.Timeout = 0 // that of the call is for its check
	} else if err := a.timeout(&r); err != nil {
		return nil, err
	}
	// A caller that sets wait_seconds may come back with input, so keep stdin
	// open. In all other runs the program reads end of file, and does not hang.
	r.KeepStdin = a.Wait != nil && r.Stdin == nil && r.Service == nil

	told := func() {}
	if r.SandboxID == "" {
		r.New.Progress, told = s.reportFetch(ctx, c, a.Image)
	}
	run, again, err := s.startOnce(ctx, c, a.Key, func(key *sandbox.RunKey) (sandbox.Run, error) {
		r.Key = key
		return s.engine.Start(ctx, c.principal, r)
	})
	told()
	if err != nil {
		return nil, err
	}
	c.facts.ran(run)
	if r.SandboxID == "" && !again {
		s.visits.Note(c.visitor(), run.SandboxID, run.ID)
	}
	waits := s.patience(c, a.Wait)
	waits.ready = r.Service != nil
	return s.answer(ctx, c, run, waits, a.Key != nil, a.Budget)
}

// maxKey bounds an idempotency_key, in bytes.
const maxKey = 256

// startOnce calls start, or returns the run of an earlier call with the same key and
// the same arguments. In that case, the run has only its id. key may be nil.
func (s *Server) startOnce(ctx context.Context, c call, key *string, start func(*sandbox.RunKey) (sandbox.Run, error)) (run sandbox.Run, again bool, err error) {
	if key == nil {
		run, err = start(nil)
		return run, false, err
	}
	if *key == "" || len(*key) > maxKey {
		return run, false, sandbox.Errorf(sandbox.Invalid, "idempotency_key: it has %d bytes, and may have 1 to %d", len(*key), maxKey)
	}
	what, err := callText(c.req.Params)
	if err != nil {
		return run, false, err
	}
	// The sandboxes of the local user end with this process. A later one has other
	// calls, which may have the same keys.
	keys, kept := &s.keys, (*sandbox.RunKey)(nil)
	if c.principal != sandbox.Local {
		keys, kept = &s.keptKeys, runKey(*key, what)
	}
	id, again, err := keys.Do(ctx, c.principal, *key, what, func() (string, error) {
		run, err = start(kept)
		return run.ID, err
	})
	if err != nil {
		return sandbox.Run{}, false, err
	}
	if again {
		s.grace.Claim(c.principal, id)
		return sandbox.Run{ID: id}, true, nil
	}
	return run, false, nil
}

// runKey returns the key with which the run of a call is recorded. The record does not
// have the key itself, so its reader cannot guess the call from the fingerprint.
func runKey(key, call string) *sandbox.RunKey {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(call)) // never fails
	return &sandbox.RunKey{Hash: sha256.Sum256([]byte(key)), Request: [32]byte(mac.Sum(nil))}
}

// callText returns a short text that is equal for calls that start the same run.
func callText(p *mcp.CallToolParamsRaw) (string, error) {
	var a map[string]any
	if err := json.Unmarshal(p.Arguments, &a); err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "arguments: %w", err)
	}
	// These select what the answer shows.
	delete(a, "wait_seconds")
	delete(a, "output_bytes")
	text, err := json.Marshal(a) // with sorted keys
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return p.Name + " " + hex.EncodeToString(sum[:]), nil
}

// A patience is how long a call waits for its run.
type patience struct {
	time  time.Duration
	asked bool   // by the caller
	note  string // says that the caller asked for more; or ""
	ready bool   // the run is a service: wait until it is ready
}

// noteOn returns the note for the result of a call about a run.
func (p patience) noteOn(run sandbox.Run) string {
	if run.Status != sandbox.RunRunning {
		return ""
	}
	return p.note
}

// patience returns how long a call waits: the time that the caller asked for, or
// Options.Patience, but not longer than the client waits for the call.
func (s *Server) patience(c call, asked *int) patience {
	p := patience{time: s.opts.Patience}
	if asked != nil {
		p = patience{time: time.Duration(*asked) * time.Second, asked: true}
	}
	// The client's time has run since the call began: a person was asked, or an image
	// was fetched.
	if most := max(0, c.client().Wait(transport.ProgressToken(c.req) != nil)-time.Since(c.began)); p.time > most {
		p.time = most
		if p.asked {
			p.note = fmt.Sprintf("The call waited %.0f of the %d s in wait_seconds, because this client may give up a longer call.", most.Seconds(), *asked)
		}
	}
	return p
}

// answer waits for a run and renders it. If the client supports tasks and did not
// specify a wait, a longer run becomes a task. keyed says that the caller can find the
// run again.
func (s *Server) answer(ctx context.Context, c call, run sandbox.Run, p patience, keyed bool, budget int) (*mcp.CallToolResult, error) {
	slot := task.SlotOf(ctx)
	if p.ready {
		slot = nil
	}
	if slot != nil && !p.asked {
		p.time = taskAfter
	}
	run, err := s.finish(ctx, c, run.ID, p, keyed)
	if err != nil {
		return nil, err
	}
	c.facts.ran(run)
	if slot != nil && !p.asked && run.Status == sandbox.RunRunning {
		slot.Becomes(run.ID, run.Started)
		return &mcp.CallToolResult{}, nil // task.WithSlot replaces it by the task
	}
	return s.show(ctx, c, run, budget, p.noteOn(run))
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

// finish waits for a run with patience p. If waiting fails or the client cancels the
// call or disconnects, it stops the run. If the client gave up the call, the run stays
// for a time of grace; keyed says that the caller can find the run again.
func (s *Server) finish(ctx context.Context, c call, runID string, p patience, keyed bool) (sandbox.Run, error) {
	run, err := s.wait(ctx, c, runID, p)
	if err == nil {
		return run, nil
	}
	// The local user's sandboxes end with this process.
	lasting := keyed && c.principal != sandbox.Local
	if lasting && errors.Is(context.Cause(ctx), transport.ErrShutdown) {
		return run, nil
	}
	// The tools of a profile find no run.
	if ctx.Err() != nil && s.opts.Profile == nil && c.gaveUp(context.Cause(ctx), keyed) {
		s.grace.Keep(c.identity, run.ID, lasting)
		s.log.Info("the client gave up the call, and the run goes on for a while", "run", run.ID, "reason", context.Cause(ctx))
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

// gaveUp reports whether a client may have ended a call because the call took too long,
// by the cause of the end of the call's context. A client of a version without sessions
// closes the request of the call, and gives no reason: after its timeout, at the wish of
// its user, or at its own end. Another client may lose its connection. Such a run goes
// on, unless the client is known to close requests at the wish of its user only. The
// local user's client is gone then.
func (c call) gaveUp(cause error, keyed bool) bool {
	if x, ok := errors.AsType[*transport.Cancelled](cause); ok {
		return client.TimedOut(x.Reason)
	}
	return errors.Is(cause, context.Canceled) && (keyed || c.principal != sandbox.Local && !c.client().ClosesToCancel)
}

// wait waits for a run with patience p, and reports progress to the client. It
// returns nil if the run finished or the time is over, and ctx's error if ctx ended.
func (s *Server) wait(ctx context.Context, c call, runID string, p patience) (run sandbox.Run, err error) {
	waitCtx, cancel := context.WithTimeout(ctx, p.time)
	defer cancel()
	stop := s.reportProgress(waitCtx, c, runID)
	defer stop()
	answered := s.notices.Waiting(c.principal, runID)
	defer func() { answered(run.Status == sandbox.RunFinished) }()
	wait := s.engine.Wait
	if p.ready {
		wait = s.engine.WaitReady
	}
	run, err = wait(waitCtx, c.principal, runID)
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
// is defaultOutput. note is a sentence for the result, or "".
func (s *Server) show(ctx context.Context, c call, run sandbox.Run, budget int, note string) (*mcp.CallToolResult, error) {
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
	results, err := s.engine.Results(ctx, c.principal, run.ID)
	if err != nil {
		return nil, err
	}
	res.AddResults(run, results, budget)
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
	if note != "" {
		res.Note(note)
	}
	return s.render(res)
}

// render returns a run as a tool's result, with the names of tools for the client.
func (s *Server) render(r answer.Run) (*mcp.CallToolResult, error) {
	r.Rename(s.renamer.text)
	return r.Render()
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
