// Package profile defines profiles. A profile is the tools and resources of
// another MCP server that Glovebox replaces, under exactly the same names, as
// data and functions.
//
// Package mcpserver serves profiles, the packages below this one define them, and
// package app connects both. A profile is a thin translation. It decodes the
// arguments of that server's clients, calls the [Engine] and encodes the answer
// as that server did. It has no rules of its own about sandboxes. It does not use
// MCP's wire format, so only package mcpserver imports the SDK.
//
// A [Profile] is made once and is safe for concurrent use. Its only state is the
// sandboxes that its callers refer to ([Sandboxes]). The engine owns the
// sandboxes.
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
	// Name is the profile's value for --profile, and its path is /mcp/NAME.
	Name string
	// ServerName and ServerVersion are the name and version that clients see.
	ServerName, ServerVersion string
	// Instructions are for the model; may be empty.
	Instructions string

	Tools     []Tool
	Resources []Resource

	// Failure renders an error as the replaced server would. If it is nil,
	// clients get the error's text and hint.
	Failure func(error) Result

	// Sessionless handles each HTTP request without a session on its own and
	// answers in JSON. It is for clients that only send POSTs.
	Sessionless bool
}

// A Tool is one tool of a profile.
type Tool struct {
	Name        string
	Description string
	// Input is the JSON Schema of the arguments.
	Input string
	Scope auth.Scope
	// ReadOnly tools change nothing. Destructive tools end a sandbox or replace
	// files of this machine.
	ReadOnly, Destructive bool
	// Run handles a call; see [Typed].
	Run func(ctx context.Context, c Call, args json.RawMessage) (Result, error)
}

// A Resource is one kind of resource: the output of a sandbox's runs.
type Resource struct {
	Template    string // of the resources' URIs
	Name        string
	Description string
	MIMEType    string
	// SandboxID returns the id of the sandbox in a URI, or "" for a URI of
	// another kind. Subscribers are notified when the sandbox's log changes.
	SandboxID func(*url.URL) string
	Read      func(context.Context, sandbox.Principal, *url.URL) ([]Content, error)
}

// A Content is a part of a resource.
type Content struct {
	URI  string // empty: the URI of the resource
	Text string
}

// A Result is the answer of a tool: texts and then images for the model, and
// Structured for programs.
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

// Text returns a result with only texts.
func Text(texts ...string) Result { return Result{Texts: texts} }

// A Call is one call of a tool. Package mcpserver makes it.
type Call struct {
	Principal sandbox.Principal
	// Connection identifies the client's connection while it lasts. It is "" on
	// stdio, which has only one connection, and for stateless requests.
	Connection string
	// AtEnd makes mcpserver call f when the connection ends, unless the process
	// ends first. It does nothing if Connection is "".
	AtEnd func(f func(context.Context))
	// Run starts a run, reports its progress to the client and returns the
	// finished run. If the client cancels the call, the run is stopped. If the
	// error came after the start, the run still has the id of its sandbox.
	Run func(context.Context, sandbox.RunRequest) (sandbox.Run, error)
	// Install installs packages, and otherwise works as Run does.
	Install func(context.Context, sandbox.PackagesRequest) (sandbox.Run, error)
}

// An Engine is the part of package engine that all profiles use.
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

// Options are the arguments of profiles. Engine and Log must be set.
type Options struct {
	Engine Engine
	Log    *slog.Logger
	// Driver is the name of the driver in use.
	Driver string
	// Detached sandboxes outlive this process. The next process finds them again
	// by the names that their callers use.
	Detached bool
	// Idle is how long an unused sandbox lives, where the replaced server had no
	// limit. Zero is the engine's default.
	Idle time.Duration
	// RunTimeout is the timeout of runs that the replaced server did not limit.
	// Zero is the engine's default.
	RunTimeout time.Duration
}
