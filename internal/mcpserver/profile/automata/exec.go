package automata

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// userID is the user's id as an argument of chown.
var userID = strconv.Itoa(sandbox.UserUID)

// commands is one shell command or a list of them.
type commands []string

// errCommands is the original's error for any other type.
var errCommands = sandbox.Errorf(sandbox.Invalid, "commands must be a string or an array of strings")

// UnmarshalJSON accepts a string or an array of strings.
func (c *commands) UnmarshalJSON(b []byte) error {
	var one string
	if err := json.Unmarshal(b, &one); err == nil {
		*c = commands{one}
		return nil
	}
	var several []any
	if err := json.Unmarshal(b, &several); err != nil {
		return errCommands
	}
	for _, v := range several {
		command, ok := v.(string)
		if !ok {
			return sandbox.Errorf(sandbox.Invalid, "Each command must be a string")
		}
		*c = append(*c, command)
	}
	return nil
}

// maxOutput bounds the output of all commands of a call in its answer, and
// maxCommandOutput the output of one command. The log has the rest.
const (
	maxOutput        = 1 << 20
	maxCommandOutput = sandbox.DefaultOutputBytes
)

func (s *server) exec(ctx context.Context, c profile.Call, in struct {
	ID       string   `json:"container_id"`
	Commands commands `json:"commands"`
}) (profile.Result, error) {
	if err := given("container_id", in.ID); err != nil {
		return profile.Result{}, err
	}
	if len(in.Commands) == 0 {
		return profile.Result{}, sandbox.Errorf(sandbox.Invalid, "at least one command is required")
	}
	dir, err := s.workDir(ctx, c.Principal, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	var b strings.Builder
	for i, command := range in.Commands {
		if i > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "$ %s\n", command)
		run, err := c.Run(ctx, sandbox.RunRequest{SandboxID: in.ID, Argv: []string{"/bin/sh", "-c", command}, Dir: dir, Root: true, Timeout: s.opts.RunTimeout})
		if err != nil {
			// Earlier commands have run, so show their output together with the
			// error.
			if i == 0 {
				return profile.Result{}, err
			}
			fmt.Fprintf(&b, "Error: %s\n", profile.Explain(err))
			return profile.Result{Texts: []string{b.String()}, IsError: true}, nil
		}
		budget := max(min(maxCommandOutput, maxOutput-b.Len()), 1024)
		out, err := s.opts.Engine.Output(ctx, c.Principal, run.ID, budget)
		if err != nil {
			return profile.Result{}, err
		}
		b.WriteString(profile.Lines(out.Stdout))
		if out.Stderr != "" {
			b.WriteString("Error: " + profile.Lines(out.Stderr))
		}
		if run.Verdict.Code != sandbox.OK {
			b.WriteString(ending(run))
			return profile.Result{Texts: []string{b.String()}, IsError: true}, nil
		}
	}
	return profile.Text(b.String()), nil
}

// ending describes the end of a command that failed, in the original's words. It
// adds the verdict if those words would hide it.
func ending(run sandbox.Run) string {
	var b strings.Builder
	if run.ExitCode != nil {
		fmt.Fprintf(&b, "Command exited with code %d\n", *run.ExitCode)
	}
	if run.Verdict.Code != sandbox.Failed {
		fmt.Fprintf(&b, "Command ended: %s: %s\n", run.Verdict.Code, run.Verdict.Cause)
		if run.Verdict.NextStep != "" {
			b.WriteString(run.Verdict.NextStep + "\n")
		}
	}
	return b.String()
}

const (
	// grace is how long programs may take to end after SIGTERM.
	grace = 10 * time.Second
	// stopGrace bounds the stop that follows.
	stopGrace = 20 * time.Second
)

// sayEnd sends SIGTERM to all processes and waits until only the first process
// and this shell are left.
const sayEnd = `kill -TERM -1 2>/dev/null
while :; do
	left=
	for p in /proc/[0-9]*; do
		case ${p#/proc/} in 1 | $$) continue ;; esac
		read -r state <"$p/stat" 2>/dev/null || continue
		case $state in *") Z "*) continue ;; esac
		left=1
	done
	[ -n "$left" ] || exit 0
	sleep 0.1 2>/dev/null || sleep 1
done`

func (s *server) stop(ctx context.Context, c profile.Call, in struct {
	ID string `json:"container_id"`
}) (profile.Result, error) {
	if err := given("container_id", in.ID); err != nil {
		return profile.Result{}, err
	}
	sb, err := s.opts.Engine.Get(ctx, c.Principal, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	if sb.State == sandbox.Running {
		// An error here does not matter, because Stop follows.
		_, err := c.Run(ctx, sandbox.RunRequest{SandboxID: in.ID, Argv: []string{"/bin/sh", "-c", sayEnd}, Dir: "/", Root: true, Timeout: grace})
		if err != nil {
			s.opts.Log.Debug("ask programs to end", "sandbox", in.ID, "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := s.opts.Engine.Stop(ctx, c.Principal, in.ID); err != nil {
		return profile.Result{}, err
	}
	return profile.Text("Successfully stopped and removed container: " + in.ID), nil
}
