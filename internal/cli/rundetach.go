package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/advice"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// detachFlags are the flags of a run that outlives the command.
type detachFlags struct {
	detach  bool
	name    string
	restart string
	ready   string
	wake    string
}

func (f *detachFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&f.detach, "detach", "d", false, "start a service in a sandbox of the server, and leave it running; with --timeout and none of the next four, a run")
	fs.StringVar(&f.name, "name", "", "`name` of the service; default service")
	fs.StringVar(&f.restart, "restart", "", "`policy` for the end of the program: never (default), on-failure or always start it again")
	fs.StringVar(&f.ready, "ready", "", "`check` that says when the service is ready: port:8000, output:PATTERN or command:TEXT; --timeout bounds the wait, default 1m")
	fs.StringVar(&f.wake, "wake", "", "with `request`, the service is paused while unused, and a request to its ports wakes it")
	for _, name := range []string{"restart", "ready", "wake"} {
		fs.Lookup(name).DefValue = ""
	}
}

// apply makes req a service, or a run with a timeout, that may outlive the command.
func (f *detachFlags) apply(cmd *cobra.Command, req *sandbox.RunRequest) error {
	set := cmd.Flags().Changed
	service := set("name") || set("restart") || set("ready") || set("wake")
	if !f.detach {
		if service {
			return sandbox.WithHint(console.UsageError("--name, --restart, --ready and --wake belong to a service"), "add --detach")
		}
		return nil
	}
	for _, name := range []string{"results", "trace", "secret"} {
		if set(name) {
			return sandbox.WithHint(console.UsageError("--%s: a server holds the sandbox of --detach, and does not know it", name),
				"leave it out; secrets and networks are settings of the server")
		}
	}
	req.KeepStdin = false
	if set("timeout") && !service && req.Timeout < sandbox.Forever {
		req.Plots = false
		return nil
	}
	if set("timeout") && f.ready == "" && req.Timeout < sandbox.Forever {
		return sandbox.WithHint(console.UsageError("--timeout: a service has none, except for --ready"), "leave it out")
	}
	var wait time.Duration
	if req.Timeout < sandbox.Forever {
		wait = req.Timeout
	}
	ready, err := sandbox.ParseReady(f.ready, wait)
	if err != nil {
		return sandbox.WithHint(console.UsageError("%w", err), "%s", sandbox.HintOf(err))
	}
	req.Timeout, req.Plots = 0, false
	req.Service = &sandbox.ServiceRequest{Name: f.name, Restart: sandbox.RestartPolicy(f.restart), Ready: ready, Wake: sandbox.WakePolicy(f.wake)}
	return nil
}

// runDetached starts req at the server. It returns when a service is ready, and at
// once for a run.
func (p *program) runDetached(ctx context.Context, req sandbox.RunRequest) (err error) {
	sys, err := p.open(ctx, func(o *app.Options) { o.CommandLine, o.Passive, o.Looks = true, true, true })
	if err != nil {
		return err
	}
	defer p.close(ctx, sys, &err)
	if req.Code == "" {
		if err := p.fetchImage(ctx, sys, req.New.Image); err != nil {
			return err
		}
		if err := entryPoint(ctx, sys, &req); err != nil {
			return err
		}
	}
	run, err := sys.StartDetached(ctx, req)
	if err != nil {
		if ctx.Err() != nil {
			return &console.ExitError{Status: console.StatusCancelled}
		}
		return err
	}
	if !p.flags.json {
		fmt.Fprintln(p.Out, run.ID, run.SandboxID)
	}
	if run.Service != nil {
		ready, err := sys.Engine.WaitReady(ctx, sandbox.Local, run.ID)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil {
			run = ready
		}
	}
	if p.flags.json {
		if err := p.PrintJSON(run); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		p.Say("the service goes on: end it with glovebox stop %s", run.ID)
		return &console.ExitError{Status: console.StatusCancelled}
	}
	return p.sayDetached(run)
}

// sayDetached says what becomes of a run that the server holds.
func (p *program) sayDetached(run sandbox.Run) error {
	if run.Service != nil && run.Status == sandbox.RunFinished && run.Verdict.Code == sandbox.OK {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "the service ended at once, with status 0"),
			"start its program in the foreground, and see its output: glovebox logs %s", run.ID)
	}
	if run.Service != nil && run.Status == sandbox.RunFinished {
		hint := "see its output: glovebox logs " + run.ID
		if next := advice.Next(run.Verdict); next != "" && run.Verdict.Code != sandbox.Timeout {
			hint += "; " + next
		}
		err := sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "the service ended: %s: %s", run.Verdict.Code, run.Verdict.Cause), "%s", hint)
		return &console.ExitError{Status: console.RunStatus(run), Err: err}
	}
	if _, seen := console.Terminal(p.Err); seen {
		p.Say("see its output with glovebox logs -f %s, end it with glovebox stop %s", run.ID, run.ID)
	}
	return nil
}
