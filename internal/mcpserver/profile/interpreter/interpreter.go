// Package interpreter is the profile of the MCP Docker Sandbox Interpreter
// (svngoku/mcp-docker-code-interpreter). Each connection has one sandbox at a
// time. Without connections, each principal has one.
//
// Only package app imports it. [New] makes a profile that lives as long as its
// server. The sandbox of a connection ends with the connection.
package interpreter

import (
	"context"
	"errors"
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Name is the profile's name.
const Name = "interpreter"

const (
	// declaredImage is the default in the original's schema. It has no Python, so
	// the original installed Python over the network. The original's
	// documentation names defaultImage, which has Python.
	declaredImage = "alpine:latest"
	defaultImage  = "python:3.12-alpine"
)

// limits are the original's limits.
var limits = sandbox.Limits{CPUs: 0.5, MemoryBytes: 512 << 20, Processes: 100}

const initializeInput = `{"type":"object","title":"initialize_sandboxArguments","properties":{` +
	`"image":{"title":"Image","type":"string","default":"` + declaredImage + `"}}}`

const executeInput = `{"type":"object","title":"execute_codeArguments","properties":{` +
	`"code":{"title":"Code","type":"string"},` +
	`"language":{"title":"Language","type":"string","default":"python"}},"required":["code"]}`

const stopInput = `{"type":"object","title":"stop_sandboxArguments","properties":{}}`

type server struct {
	opts      profile.Options
	sandboxes *profile.Sandboxes
}

// New returns the profile.
func New(o profile.Options) profile.Profile {
	s := &server{opts: o, sandboxes: profile.NewSandboxes(o, Name)}
	return profile.Profile{
		Name:          Name,
		ServerName:    "Docker Code Sandbox",
		ServerVersion: "1.0.0",
		Failure:       failure,
		Tools: []profile.Tool{
			{
				Name: "initialize_sandbox",
				Description: "Start a sealed sandbox for your code: no network, 512 MiB of memory, half a CPU. " +
					"If there is one already, that one is kept. image is any container image, such as python:3.12-alpine.",
				Input: initializeInput, Scope: auth.ScopeRun,
				Run: profile.Typed(initializeInput, s.initialize),
			},
			{
				Name: "execute_code",
				Description: "Run a program in the sandbox that initialize_sandbox started. Returns its output and exit code. " +
					"Each program starts anew; files in /tmp stay.",
				Input: executeInput, Scope: auth.ScopeRun,
				Run: profile.Typed(executeInput, s.execute),
			},
			{
				Name:        "stop_sandbox",
				Description: "Stop the sandbox and remove everything in it.",
				Input:       stopInput, Scope: auth.ScopeRun, Destructive: true,
				Run: profile.Typed(stopInput, s.stop),
			},
		},
	}
}

type initialized struct {
	Status      string `json:"status"`
	ContainerID string `json:"container_id"`
	Message     string `json:"message,omitempty"`
}

func (s *server) initialize(ctx context.Context, c profile.Call, in struct {
	Image string `json:"image"`
}) (profile.Result, error) {
	note := ""
	id, made, err := s.sandboxes.Make(ctx, c.Principal, c.Connection, func(name string) (sb sandbox.Sandbox, err error) {
		r := sandbox.CreateRequest{Name: name, Limits: limits}
		r.Limits.Idle = s.opts.Idle
		sb, note, err = s.create(ctx, c, r, in.Image)
		if errors.Is(err, sandbox.Unsupported) && ctx.Err() == nil {
			// Without a cgroup, the driver can enforce only whole CPUs.
			r.Limits.CPUs = 1
			var again error
			if sb, note, again = s.create(ctx, c, r, in.Image); again != nil {
				return sb, err
			}
			s.opts.Log.Warn("half a CPU cannot be enforced here: the sandbox has one", "sandbox", sb.ID, "error", err)
			return sb, nil
		}
		return sb, err
	})
	if err != nil {
		return profile.Result{}, err
	}
	if made && c.Connection != "" {
		c.AtEnd(func(ctx context.Context) {
			if err := s.sandboxes.Close(ctx, c.Principal, c.Connection); err != nil && !errors.Is(err, sandbox.NotFound) {
				s.opts.Log.Error("stop the sandbox of a connection that ended", "sandbox", id, "error", err)
			}
		})
	}
	return profile.JSON(initialized{Status: "success", ContainerID: id, Message: note})
}

// create makes a sandbox with the given image, or with the default image if the
// caller gave none.
func (s *server) create(ctx context.Context, c profile.Call, r sandbox.CreateRequest, image string) (sandbox.Sandbox, string, error) {
	if image == "" || image == declaredImage {
		return profile.CreateDefault(ctx, s.opts, c.Principal, r, defaultImage)
	}
	r.Image = image
	sb, err := s.opts.Engine.Create(ctx, c.Principal, r)
	return sb, "", err
}

// executed is the outcome of a program in the original's format. Stdout, Stderr
// and Verdict are additions.
type executed struct {
	Status    string              `json:"status"`
	ErrorType string              `json:"error_type,omitempty"`
	Message   string              `json:"message,omitempty"`
	ExitCode  *int                `json:"exit_code"`
	Output    *string             `json:"output"`
	Stdout    string              `json:"stdout"`
	Stderr    string              `json:"stderr"`
	Verdict   sandbox.VerdictCode `json:"verdict,omitempty"`
}

func (s *server) execute(ctx context.Context, c profile.Call, in struct {
	Code     string  `json:"code"`
	Language *string `json:"language"`
}) (profile.Result, error) {
	id, err := s.sandboxes.Find(ctx, c.Principal, c.Connection)
	if errors.Is(err, sandbox.NotFound) {
		return failed(problem{"error", "StateError", "Sandbox not initialized. Call 'initialize_sandbox' first."})
	}
	if err != nil {
		return profile.Result{}, err
	}
	language := language.Default
	if in.Language != nil {
		language = *in.Language
	}
	run, err := c.Run(ctx, sandbox.RunRequest{SandboxID: id, Code: in.Code, Language: language, Dir: "/tmp"})
	if k := sandbox.KindOf(err); k == sandbox.Invalid || k == sandbox.Unsupported {
		// The program could not start, but the sandbox is fine.
		return failed(executed{Status: "error", ErrorType: "ExecutionError", Message: profile.Explain(err)})
	}
	if err != nil {
		return profile.Result{}, err
	}
	out, err := profile.ReadOutput(ctx, s.opts.Engine, c.Principal, run.ID, sandbox.DefaultOutputBytes)
	if err != nil {
		return profile.Result{}, err
	}
	e := executed{Status: "success", ExitCode: run.ExitCode, Output: &out.Merged, Stdout: out.Stdout, Stderr: out.Stderr}
	if run.Verdict.Code == sandbox.OK {
		return profile.JSON(e)
	}
	e.Status, e.ErrorType, e.Verdict = "error", "ExecutionError", run.Verdict.Code
	if run.Verdict.Code == sandbox.Failed && run.ExitCode != nil {
		e.Message = fmt.Sprintf("Execution failed with exit code %d", *run.ExitCode)
	} else {
		e.Message = fmt.Sprintf("Execution ended with the verdict %s: %s", run.Verdict.Code, run.Verdict.Cause)
		if run.Verdict.NextStep != "" {
			e.Message += "; " + run.Verdict.NextStep
		}
	}
	return failed(e)
}

type stopped struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func (s *server) stop(ctx context.Context, c profile.Call, _ struct{}) (profile.Result, error) {
	// A sandbox that does not exist counts as stopped.
	if err := s.sandboxes.Close(ctx, c.Principal, c.Connection); err != nil && !errors.Is(err, sandbox.NotFound) {
		return failed(problem{"error", "CleanupError", "An error occurred during cleanup: " + profile.Explain(err)})
	}
	return profile.JSON(stopped{"success", "Sandbox stopped and removed."})
}

type problem struct {
	Status    string `json:"status"`
	ErrorType string `json:"error_type"`
	Message   string `json:"message"`
}

func failed(v any) (profile.Result, error) {
	r, err := profile.JSON(v)
	r.IsError = true
	return r, err
}

// failure classifies errors as the original does: engine errors, and all others.
func failure(err error) profile.Result {
	kind := "UnexpectedError"
	switch sandbox.KindOf(err) {
	case sandbox.Unavailable, sandbox.Unsupported, sandbox.NotFound, sandbox.Exhausted:
		kind = "DockerException"
	}
	r, err := failed(problem{"error", kind, profile.Explain(err)})
	if err != nil {
		return profile.Text(err.Error()) // strings always encode
	}
	return r
}
