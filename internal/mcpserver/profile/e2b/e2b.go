// Package e2b is the profile of the MCP Code Sandbox Server
// (chrishayuk/mcp-code-sandbox). Callers choose a session_id for each sandbox. A
// sandbox has a Python interpreter that keeps its state, files, packages and
// charts.
//
// Only package app imports it. [New] makes a profile that lives as long as its
// server. A session is a sandbox. It ends when the client closes it, by the
// sandbox's own limits, and over stdio with the client.
package e2b

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Name is the profile's name.
const Name = "e2b"

// Engine is the part of package engine that this profile uses.
type Engine interface {
	profile.Engine
	// Results returns the results of a run in a context.
	Results(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Results, error)
}

// Options are the arguments of [New]. Engine must be set.
type Options struct {
	profile.Options
	Engine Engine
}

type server struct {
	opts      Options
	sandboxes *profile.Sandboxes
}

const (
	sessionProperty = `"session_id":{"title":"Session Id","type":"string"}`

	sessionInput = `{"type":"object","properties":{` + sessionProperty + `},"required":["session_id"]}`

	statusInput = `{"type":"object","properties":{` +
		`"session_id":{"title":"Session Id","anyOf":[{"type":"string"},{"type":"null"}],"default":null}}}`
)

// New returns the profile.
func New(o Options) profile.Profile {
	s := &server{opts: o, sandboxes: profile.NewSandboxes(o.Options, Name)}
	tools := []profile.Tool{
		{
			Name: "create_sandbox",
			Description: "Make a sealed sandbox, which the other tools know by the session_id that you choose. " +
				"It has no network unless the operator allowed one.",
			Input: sessionInput, Scope: auth.ScopeRun,
			Run: profile.Typed(sessionInput, s.create),
		},
		{
			Name:        "close_sandbox",
			Description: "End a sandbox and free all that it holds.",
			Input:       sessionInput, Scope: auth.ScopeRun, Destructive: true,
			Run: profile.Typed(sessionInput, s.close),
		},
		{
			Name:        "get_sandbox_status",
			Description: "Tell whether a sandbox is active, or without session_id which ones are.",
			Input:       statusInput, Scope: auth.ScopeRun, ReadOnly: true,
			Run: profile.Typed(statusInput, s.status),
		},
	}
	tools = append(tools, s.codeTools()...)
	tools = append(tools, s.fileTools()...)
	return profile.Profile{
		Name:          Name,
		ServerName:    "Code Sandbox",
		ServerVersion: "1.0.0",
		Failure:       failure,
		Tools:         append(tools, s.chartTools()...),
	}
}

type session struct {
	ID string `json:"session_id"`
}

func (s *server) create(ctx context.Context, c profile.Call, in session) (profile.Result, error) {
	if err := profile.CheckName("session_id", in.ID); err != nil {
		return profile.Result{}, err
	}
	_, made, err := s.sandboxes.Make(ctx, c.Principal, in.ID, func(name string) (sandbox.Sandbox, error) {
		return s.opts.Engine.Create(ctx, c.Principal, sandbox.CreateRequest{Name: name, Limits: sandbox.Limits{Idle: s.opts.Idle}})
	})
	if err != nil {
		return profile.Result{Texts: []string{"Failed to create sandbox: " + profile.Explain(err)}, IsError: true}, nil
	}
	if !made {
		return profile.Text("Sandbox with session ID " + in.ID + " already exists."), nil
	}
	return profile.Text("Sandbox created successfully with session ID: " + in.ID), nil
}

func (s *server) close(ctx context.Context, c profile.Call, in session) (profile.Result, error) {
	err := s.sandboxes.Close(ctx, c.Principal, in.ID)
	if errors.Is(err, sandbox.NotFound) {
		return profile.Text("Sandbox with session ID " + in.ID + " is not active or has already been closed."), nil
	}
	if err != nil {
		return profile.Result{}, err
	}
	return profile.Text("Sandbox with session ID " + in.ID + " has been successfully closed and all resources freed."), nil
}

func (s *server) status(ctx context.Context, c profile.Call, in session) (profile.Result, error) {
	if in.ID == "" {
		names, err := s.sandboxes.Names(ctx, c.Principal)
		if err != nil {
			return profile.Result{}, err
		}
		return profile.JSON(struct {
			Count    int      `json:"active_sandbox_count"`
			Sessions []string `json:"active_sessions"`
			Type     string   `json:"interpreter_type"`
		}{len(names), names, s.opts.Driver})
	}
	_, err := s.sandboxes.Find(ctx, c.Principal, in.ID)
	if errors.Is(err, sandbox.NotFound) {
		return failed("No sandbox found with session ID: " + in.ID)
	}
	if err != nil {
		return profile.Result{}, err
	}
	return profile.JSON(struct {
		Status    string `json:"status"`
		SessionID string `json:"session_id"`
		Type      string `json:"interpreter_type"`
	}{"active", in.ID, s.opts.Driver})
}

// errNoSession is the error of [server.find]; failure shows only its own text.
type errNoSession struct{ id string }

func (e errNoSession) Error() string {
	return "No sandbox found with session ID: " + e.id + ". Create a sandbox first."
}

// find returns the sandbox of a session. If there is none, the error wraps
// errNoSession and [sandbox.NotFound].
func (s *server) find(ctx context.Context, c profile.Call, session string) (id string, err error) {
	id, err = s.sandboxes.Find(ctx, c.Principal, session)
	if errors.Is(err, sandbox.NotFound) {
		return "", sandbox.Errorf(sandbox.NotFound, "%w", errNoSession{session})
	}
	return id, err
}

// failed returns a result with an error's text.
func failed(text string) (profile.Result, error) {
	r, err := profile.JSON(struct {
		Error string `json:"error"`
	}{text})
	r.IsError = true
	return r, err
}

func failure(err error) profile.Result {
	text := profile.Explain(err)
	if none, ok := errors.AsType[errNoSession](err); ok {
		text = none.Error()
	}
	r, err := failed(text)
	if err != nil {
		return profile.Text(err.Error()) // strings always encode
	}
	return r
}
