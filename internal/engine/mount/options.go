package mount

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// EndTimeout bounds the last copy of a sandbox that is about to end, with the
// wait for its turn, unless Options sets another time.
const EndTimeout = 3 * time.Minute

// Options configure a Set. Fields are required unless they say otherwise.
type Options struct {
	Keeper  workspace.Keeper // nil if the server keeps no workspaces
	Records Records
	Log     *slog.Logger
	Now     func() time.Time // the time of records
	Shard   sandbox.Shard    // of new workspaces

	// Work runs a function in the background, and reports whether it does.
	// Closed reports whether no more mounts are made.
	Work   func(func()) bool
	Closed func() bool

	// Quota bounds one workspace, and PrincipalQuota all workspaces of a
	// principal together; a zero field means no limit. Max is the largest number
	// of workspaces per principal; zero means 1000. A workspace is removed when it
	// was unused for TTL; zero means never.
	Quota, PrincipalQuota sandbox.WorkspaceUsage
	Max                   int
	TTL                   time.Duration

	// CheckGrow returns an error of kind Exhausted if nothing may add to the workspaces of
	// a principal.
	CheckGrow func(ctx context.Context, p sandbox.Principal) error

	// Driver is the driver's name. Copied means that it mounts no workspaces, so
	// that sandboxes have copies. EndTimeout bounds the last copy of a sandbox;
	// zero means [EndTimeout].
	Driver     string
	Copied     bool
	EndTimeout time.Duration
	// Root has a directory for each sandbox. States keeps the state of a copy
	// there for the next process.
	Root   *os.Root
	States bool

	// EndWait is how long runs have to end when their workspace is full.
	EndWait time.Duration
}

// Records are the records of workspaces that a Set needs.
type Records interface {
	Workspace(ctx context.Context, idOrHandle string) (store.Workspace, error)
	NamedWorkspace(ctx context.Context, p sandbox.Principal, name string) (store.Workspace, error)
	OtherWorkspaces(ctx context.Context, p sandbox.Principal, except []string) (sandbox.WorkspaceUsage, error)
	IdleWorkspaces(ctx context.Context, before time.Time) ([]store.Workspace, error)
	UseWorkspace(ctx context.Context, w store.Workspace, most int, make func() error) error
	TouchWorkspace(ctx context.Context, id string, used time.Time, usage *sandbox.WorkspaceUsage) error
	DeleteWorkspace(ctx context.Context, id string, before time.Time, remove func() error) (bool, error)
}

// A Sandbox is a live sandbox with a workspace.
type Sandbox interface {
	ID() string
	// Stop stops the sandbox, and returns when nothing is left of it or ctx ends.
	Stop(ctx context.Context, why verdict.Reason) error
	// Unnamed lists the unlinked files that its programs have open. It lists none
	// before the sandbox has started.
	Unnamed(ctx context.Context) ([]driver.UnnamedFile, error)

	// StayAwake keeps it from being paused until done is called. It reports false
	// for a sandbox that is paused, has not started, or stops.
	StayAwake() (done func(), ok bool)
	// Script runs a script of the shell in the workspace, as root, and returns its
	// output. The output ends with io.EOF only if the script succeeds.
	Script(ctx context.Context, timeout time.Duration, script string, args ...string) (io.ReadCloser, error)
	// PutTemp writes a file, as root.
	PutTemp(ctx context.Context, path string, r io.Reader) error
}

// A Run is a run in a sandbox with a workspace.
type Run interface {
	// EndFull begins to end the run because of its full workspace. It does nothing
	// for a run that is just beginning or that ends already.
	EndFull(why error)
}
