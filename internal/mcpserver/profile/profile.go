// Package profile says what a profile is: the tools and resources of one server
// that Glovebox replaces, under exactly its names, as data and functions.
//
// Package mcpserver serves profiles, the packages below this one make them, and
// package app puts both together. A profile is a thin translation: it decodes
// what that server's clients send, asks the [Engine], and writes what comes back
// as that server did. It owns no rule about sandboxes, and knows nothing of MCP's
// wire, so that the SDK stays in package mcpserver.
//
// A [Profile] is made once and is safe for concurrent use. What it remembers is
// which sandbox a caller means ([Sandboxes]); the sandboxes are the engine's.
package profile

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/url"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Profile is a set of tools and resources.
type Profile struct {
	// Name is what --profile takes, and the path /mcp/NAME.
	Name string
	// ServerName and ServerVersion are what clients are told the server is.
	ServerName, ServerVersion string
	// Instructions, if any, are for the model.
	Instructions string

	Tools     []Tool
	Resources []Resource

	// Failure renders an error as the replaced server would. Without it a
	// client gets the error's text and hint.
	Failure func(error) Result

	// Sessionless serves each HTTP request by itself and answers in JSON,
	// whether or not the client has opened a session: for clients that only
	// ever post.
	Sessionless bool
}

// A Tool is one tool.
type Tool struct {
	Name        string
	Description string
	// Input is the JSON Schema of the arguments.
	Input string
	Scope auth.Scope
	// ReadOnly tools change nothing; Destructive ones may overwrite or end
	// something.
	ReadOnly, Destructive bool
	// Run answers a call; see [Typed].
	Run func(ctx context.Context, c Call, args json.RawMessage) (Result, error)
}

// A Resource is one kind of resource, which tells what the runs of a sandbox
// wrote.
type Resource struct {
	Template    string // of its URIs
	Name        string
	Description string
	MIMEType    string
	// SandboxID returns the sandbox that a URI is about, or "" for a URI that
	// is no such resource. Subscribers hear when its log changes.
	SandboxID func(*url.URL) string
	Read      func(context.Context, sandbox.Principal, *url.URL) ([]Content, error)
}

// A Content is a part of a resource.
type Content struct {
	URI  string // that of the resource if empty
	Text string
}

// A Result is what a tool answers: texts for the model, then images, and the
// same for programs.
type Result struct {
	Texts      []string
	Images     []Image
	Structured any
	IsError    bool
}

// An Image is a picture.
type Image struct {
	MIMEType string
	Data     []byte
}

// Text is a result of texts alone.
func Text(texts ...string) Result { return Result{Texts: texts} }

// A Call is one call of a tool, as package mcpserver makes it.
type Call struct {
	Principal sandbox.Principal
	// Connection names the client's connection, as long as it lasts; it is ""
	// where there is only one, and where calls come each by itself.
	Connection string
	// AtEnd has f called when that connection ends, if it does before this
	// process.
	AtEnd func(f func(context.Context))
	// Run starts a run and returns it when it has finished, telling the
	// client of its progress. A client that gives the call up ends the run. With
	// an error the run still says in which sandbox it was, if there is one.
	Run func(context.Context, sandbox.RunRequest) (sandbox.Run, error)
	// Install installs packages, as a run does.
	Install func(context.Context, sandbox.PackagesRequest) (sandbox.Run, error)
}

// An Engine is what profiles need of package engine, as mcpserver's own tools
// do.
type Engine interface {
	Create(ctx context.Context, p sandbox.Principal, r sandbox.CreateRequest) (sandbox.Sandbox, error)
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error)
	Stop(ctx context.Context, p sandbox.Principal, id string) error
	Follow(ctx context.Context, p sandbox.Principal, runID string, emit func(stream sandbox.StreamName, data []byte) error) error
	Output(ctx context.Context, p sandbox.Principal, runID string, budget int) (sandbox.Output, error)
	ReadOutput(ctx context.Context, p sandbox.Principal, runID string, stream sandbox.StreamName, offset, limit int64) (data []byte, total int64, err error)
	Runs(ctx context.Context, p sandbox.Principal, sandboxID string, limit int) ([]sandbox.Run, error)
	ReadFile(ctx context.Context, p sandbox.Principal, id, path string, offset, length int64) (io.ReadCloser, int64, error)
	WriteFile(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader, appendTo bool) error
	StatFile(ctx context.Context, p sandbox.Principal, id, path string) (sandbox.File, error)
	ListFiles(ctx context.Context, p sandbox.Principal, id, path string, depth int) (files []sandbox.File, more bool, err error)
}

// Options are what profiles are made from. Engine and Log must be set.
type Options struct {
	Engine Engine
	Log    *slog.Logger
	// Driver is the name of the driver in use.
	Driver string
	// Detached sandboxes outlive this process, and what a caller calls its
	// own is found again by the next.
	Detached bool
	// Idle is how long a sandbox lives that nothing is done with, where the
	// replaced server set no bound; zero is the engine's default.
	Idle time.Duration
	// RunTimeout is for runs that the replaced server did not bound; zero is
	// the engine's default.
	RunTimeout time.Duration
}
