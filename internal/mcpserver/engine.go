package mcpserver

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/snapshots"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Engine is the part of package engine that the tools use. All methods act for
// one principal. A sandbox or run of another principal gives an error wrapping
// [sandbox.NotFound].
type Engine interface {
	// Create makes a sandbox and returns when the sandbox is running.
	Create(ctx context.Context, p sandbox.Principal, r sandbox.CreateRequest) (sandbox.Sandbox, error)
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error)
	// SetNetwork changes the network policy of a sandbox that has a network. It
	// ends connections that the new policy does not allow.
	SetNetwork(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error)
	// CreateExcess returns the part of a request for a sandbox that is above the
	// operator's defaults. NetworkExcess does that for SetNetwork.
	CreateExcess(r sandbox.CreateRequest) (sandbox.Excess, error)
	NetworkExcess(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Excess, error)
	// Stop stops a sandbox with all its processes. It is idempotent.
	Stop(ctx context.Context, p sandbox.Principal, id string) error

	// Start returns as soon as the run exists. Without a SandboxID it makes a
	// sandbox for the run.
	Start(ctx context.Context, p sandbox.Principal, r sandbox.RunRequest) (sandbox.Run, error)
	// KeyedRun returns the identifier of the run that p began with a key. The error
	// wraps [sandbox.NotFound] if there is none, and [sandbox.Conflict] if it was for
	// another request.
	KeyedRun(ctx context.Context, p sandbox.Principal, key sandbox.RunKey) (string, error)
	// Install starts a run that installs packages. It fails at once if the
	// network policy does not allow that.
	Install(ctx context.Context, p sandbox.Principal, r sandbox.PackagesRequest) (sandbox.Run, error)
	// Languages lists the languages of a sandbox. Without an id it makes a
	// sandbox from r, and returns its id.
	Languages(ctx context.Context, p sandbox.Principal, id string, r sandbox.CreateRequest) ([]sandbox.Language, string, error)
	// Contexts lists the contexts of a sandbox. The call does not count as use of
	// the sandbox. RemoveContext ends one context and the run in progress in it.
	Contexts(ctx context.Context, p sandbox.Principal, sandboxID string) ([]sandbox.Context, error)
	RemoveContext(ctx context.Context, p sandbox.Principal, sandboxID, name, language string) error
	// Wait returns when the run has finished or ctx ends. If ctx ends, it returns
	// the run in its current state and ctx's error.
	Wait(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	// WaitReady returns a service when it is ready or has finished, and otherwise is
	// like Wait. Services returns the services of a sandbox whose runs are in
	// progress.
	WaitReady(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	Services(ctx context.Context, p sandbox.Principal, sandboxID string) ([]sandbox.Run, error)
	// Follow calls emit with the run's output from the beginning, as it arrives.
	// It returns when the run has finished, ctx ends or emit returns an error.
	Follow(ctx context.Context, p sandbox.Principal, runID string, emit func(stream sandbox.StreamName, data []byte) error) error
	// Output returns the part of the run's output so far that fits into budget
	// bytes.
	Output(ctx context.Context, p sandbox.Principal, runID string, budget int) (sandbox.Output, error)
	// Results returns the results so far of a run in a context.
	Results(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Results, error)
	// ReadOutput returns up to limit bytes of one stream, from offset on, and the
	// stream's length so far. An offset at output that was not kept gives an error
	// wrapping [sandbox.Gap].
	ReadOutput(ctx context.Context, p sandbox.Principal, runID string, stream sandbox.StreamName, offset, limit int64) (data []byte, total int64, err error)
	// StopRun kills a run's whole process tree and returns the run. It is
	// idempotent.
	StopRun(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	// Runs returns the last limit runs of a sandbox, oldest first.
	Runs(ctx context.Context, p sandbox.Principal, sandboxID string, limit int) ([]sandbox.Run, error)
	// LastRuns returns the last limit runs of the principal in all sandboxes, newest
	// first.
	LastRuns(ctx context.Context, p sandbox.Principal, limit int) ([]sandbox.ListedRun, error)
	// SendInput writes to the standard input of a run that was started with
	// KeepStdin. If eof is set, it then closes the input.
	SendInput(ctx context.Context, p sandbox.Principal, runID string, data []byte, eof bool) error

	// ReadFile opens up to length bytes of a file, from offset on, and returns
	// the size of the whole file.
	ReadFile(ctx context.Context, p sandbox.Principal, id, path string, offset, length int64) (io.ReadCloser, int64, error)
	WriteFile(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader, appendTo bool) error
	// StatFile describes a file. It does not follow a symbolic link.
	StatFile(ctx context.Context, p sandbox.Principal, id, path string) (sandbox.File, error)
	// ListFiles lists a directory to a depth, and reports whether the list was
	// cut short.
	ListFiles(ctx context.Context, p sandbox.Principal, id, path string, depth int) (files []sandbox.File, more bool, err error)
	// EditFile makes all edits of a file, or none. It fails with [sandbox.Conflict]
	// if a program changed the file meanwhile.
	EditFile(ctx context.Context, p sandbox.Principal, id, path string, edits []sandbox.Edit) (sandbox.Edited, error)
	SearchFiles(ctx context.Context, p sandbox.Principal, id string, r sandbox.SearchRequest) (sandbox.Found, error)
	// Diff returns the changes of files since a run, or in all.
	Diff(ctx context.Context, p sandbox.Principal, id string, r sandbox.DiffRequest) (sandbox.Diff, error)
	// GlobFiles lists the files that match a glob; depth 0 is every level.
	GlobFiles(ctx context.Context, p sandbox.Principal, id, path, glob string, depth int) (sandbox.Listing, error)

	snapshots.Engine

	// Workspaces lists the workspaces with their last measured sizes, and
	// Workspace measures one now. DeleteWorkspace fails with [sandbox.Conflict]
	// while a sandbox uses the workspace.
	Workspaces(ctx context.Context, p sandbox.Principal) ([]sandbox.Workspace, error)
	Workspace(ctx context.Context, p sandbox.Principal, name string) (sandbox.Workspace, error)
	DeleteWorkspace(ctx context.Context, p sandbox.Principal, name string) error
}
