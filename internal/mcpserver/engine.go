package mcpserver

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Engine is what the tools need of package engine. Everything in it is for one
// principal: what belongs to another does not exist, and gives an error
// wrapping [sandbox.NotFound].
type Engine interface {
	// Create makes a sandbox and returns when it is running.
	Create(ctx context.Context, p sandbox.Principal, r sandbox.CreateRequest) (sandbox.Sandbox, error)
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error)
	// SetNetwork changes what a sandbox with a network may reach, and ends
	// the connections that it may no longer have.
	SetNetwork(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error)
	// Stop stops a sandbox and all that runs in it; it is idempotent.
	Stop(ctx context.Context, p sandbox.Principal, id string) error

	// Start returns as soon as the run exists. Without a SandboxID it makes
	// a sandbox for it.
	Start(ctx context.Context, p sandbox.Principal, r sandbox.RunRequest) (sandbox.Run, error)
	// Install begins a run that installs packages; it fails at once if the
	// network does not let it.
	Install(ctx context.Context, p sandbox.Principal, r sandbox.PackagesRequest) (sandbox.Run, error)
	// Languages tells which languages a sandbox has. Without an id it makes one
	// as r says, and returns its id.
	Languages(ctx context.Context, p sandbox.Principal, id string, r sandbox.CreateRequest) ([]sandbox.Language, string, error)
	// Contexts lists the contexts of a sandbox, which is no use of it.
	// RemoveContext ends one, with the run that is under way in it.
	Contexts(ctx context.Context, p sandbox.Principal, sandboxID string) ([]sandbox.Context, error)
	RemoveContext(ctx context.Context, p sandbox.Principal, sandboxID, name, language string) error
	// Wait returns when the run has finished or ctx ends; in the second case
	// with the run as it stands and ctx's error.
	Wait(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	// Follow calls emit with the run's output from its beginning, as it
	// comes, until the run has finished, ctx ends or emit returns an error.
	Follow(ctx context.Context, p sandbox.Principal, runID string, emit func(stream sandbox.StreamName, data []byte) error) error
	// Output returns what of the run's output so far fits budget bytes.
	Output(ctx context.Context, p sandbox.Principal, runID string, budget int) (sandbox.Output, error)
	// Results returns what a run in a context showed so far.
	Results(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Results, error)
	// ReadOutput returns up to limit bytes of one stream from offset on, and
	// how long the stream is so far.
	ReadOutput(ctx context.Context, p sandbox.Principal, runID string, stream sandbox.StreamName, offset, limit int64) (data []byte, total int64, err error)
	// StopRun ends a run's whole process tree and returns the run; it is
	// idempotent.
	StopRun(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	// Runs returns the last limit runs of a sandbox, the oldest first.
	Runs(ctx context.Context, p sandbox.Principal, sandboxID string, limit int) ([]sandbox.Run, error)
	// SendInput writes to the input of a run started with KeepStdin, and
	// closes it if eof is set.
	SendInput(ctx context.Context, p sandbox.Principal, runID string, data []byte, eof bool) error

	// ReadFile opens length bytes of a file from offset on, and returns the
	// size of the whole file.
	ReadFile(ctx context.Context, p sandbox.Principal, id, path string, offset, length int64) (io.ReadCloser, int64, error)
	WriteFile(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader, appendTo bool) error
	// StatFile describes a file without following a link.
	StatFile(ctx context.Context, p sandbox.Principal, id, path string) (sandbox.File, error)
	// ListFiles lists a directory to a depth, and reports whether there is
	// more than is listed.
	ListFiles(ctx context.Context, p sandbox.Principal, id, path string, depth int) (files []sandbox.File, more bool, err error)

	// Workspaces lists workspaces as they were last measured, and Workspace
	// measures one. DeleteWorkspace fails with [sandbox.Conflict] while a
	// sandbox has it.
	Workspaces(ctx context.Context, p sandbox.Principal) ([]sandbox.Workspace, error)
	Workspace(ctx context.Context, p sandbox.Principal, name string) (sandbox.Workspace, error)
	DeleteWorkspace(ctx context.Context, p sandbox.Principal, name string) error
}
