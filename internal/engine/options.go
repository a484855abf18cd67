package engine

import (
	"log/slog"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/snapshot"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Options configure an Engine. Zero fields take their defaults.
type Options struct {
	Driver driver.Driver // required
	Store  *store.Store  // required
	// StateDir is the directory of the store; output logs are kept below it.
	StateDir string       // required
	Log      *slog.Logger // default: none

	// Shard is in the identifiers of new sandboxes, runs and workspaces.
	Shard sandbox.Shard // default: none

	// Defaults are the limits of a sandbox whose creator asked for none. Maxima
	// are the largest limits that a creator may ask for; a zero field means no
	// maximum.
	Defaults, Maxima sandbox.Limits // Defaults default: sandbox.DefaultLimits
	// AllowUnenforced names controls that the operator accepts unenforced.
	AllowUnenforced []sandbox.ControlName
	// Boundary is the first control of every receipt: the barrier between the
	// code and this machine, with the reason. Without a name, the driver's own
	// description is used.
	Boundary sandbox.Control
	// Network is the policy of a sandbox whose creator asked for none.
	// MaxNetwork is the most permissive policy that a creator may ask for.
	// NetworkTerms apply to all networks.
	Network, MaxNetwork sandbox.Network // default: sandbox.NetworkNone
	NetworkTerms        sandbox.NetworkTerms
	// Secrets are inserted into requests that sandboxes send, within
	// MaxNetwork.
	Secrets []sandbox.Secret
	// MaxSandboxes bounds the live sandboxes of this process, and MaxRuns the
	// runs in progress in one sandbox.
	MaxSandboxes int // default: 64
	MaxRuns      int // default: 256
	// QueueTime is how long a caller waits for a place when MaxSandboxes exist;
	// zero means no wait. EvictAfter is how long a sandbox must be unused
	// before it may be stopped for a waiting caller; zero means that no sandbox
	// is.
	QueueTime, EvictAfter time.Duration
	// Containers lets programs in sandboxes run containers of their own.
	Containers bool
	// Hibernation says when sandboxes are saved on disk, if the driver can save them.
	Hibernation hibernation.Settings

	// RunTimeout is the timeout of a run that asked for none. MaxRunTimeout is
	// the longest timeout that a run may ask for.
	RunTimeout    time.Duration // default: 30 s
	MaxRunTimeout time.Duration // default: 10 min

	// Workspaces keeps workspaces; nil disables them. WorkspaceQuota bounds one
	// workspace, and PrincipalQuota all workspaces of a principal together; a
	// zero field means no limit. A workspace is removed when it was unused for
	// WorkspaceTTL; zero means never.
	Workspaces                     workspace.Keeper
	WorkspaceQuota, PrincipalQuota sandbox.WorkspaceUsage
	WorkspaceTTL                   time.Duration
	// MaxWorkspaces is the largest number of workspaces per principal; zero
	// means 1000.
	MaxWorkspaces int

	// Detached sandboxes outlive this process. The driver must support that.
	Detached bool
	// CommandLine means that [sandbox.Local] is a person at a command line, not
	// a model that speaks MCP. A person may name any registry.
	CommandLine bool

	// RestAfter is how long a sandbox is unused before it is paused.
	RestAfter time.Duration // default: 50 ms
	// SweepEvery is the interval between the sweeps of Run.
	SweepEvery time.Duration // default: 1 min
	// Retention is how long records and logs are kept after their run or
	// sandbox has ended.
	Retention time.Duration // default: 24 h
	// LogSize bounds the output kept of one run (8 MiB at least). LogsSize
	// bounds the output kept of all runs; half of it is for runs in progress.
	LogSize  int64 // default: 64 MiB
	LogsSize int64 // default: 4 GiB

	Snapshots snapshot.Limits // of each principal

	// Runners are the supported languages.
	Runners interpreter.Table // default: interpreter.Runners
	// Indexes are the package indexes that installers use instead of their
	// usual ones, by the name of the installer.
	Indexes map[string]string

	// Trace receives the spans of sandboxes and runs, for calls whose context
	// has no sink of its own.
	Trace trace.Sink // default: none
	// Metrics counts events.
	Metrics *metrics.Set // default: none
	// Connected is called with each connection of a sandbox after its end.
	Connected func(p sandbox.Principal, id string, c sandbox.Connection) // default: none

	// UsageLabel is the key of the label of sandboxes that usage is counted by; "" is
	// none.
	UsageLabel string

	// Now is the clock for records. Timers use the clock of the Go runtime.
	Now func() time.Time // default: time.Now

	// Dial makes the client of a box's guest. Tests replace it.
	dialGuest func(driver.Box) guestlink.Guest
	// endCopyTimeout defaults to [mount.EndTimeout]. Tests set a
	// shorter one.
	endCopyTimeout time.Duration
}

// Timeouts for work that the engine does on its own, outside any caller's
// context. They keep a stuck driver from blocking the engine forever.
const (
	createTimeout    = 2 * time.Minute
	destroyTimeout   = time.Minute
	warmPauseTimeout = 10 * time.Second
	coldPauseTimeout = 2 * time.Minute
	cleanupTimeout   = 10 * time.Second
	// closeTimeout is for what still goes on at the end of Close. It is more
	// than a sandbox takes to stop, with the last copy of its workspace.
	closeTimeout = mount.EndTimeout + 3*destroyTimeout

	// pollEvery is the polling interval for a run of another process.
	pollEvery = 100 * time.Millisecond
)

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.RunTimeout, 30*time.Second)
	set(&o.MaxRunTimeout, 10*time.Minute)
	set(&o.RestAfter, 50*time.Millisecond)
	set(&o.SweepEvery, time.Minute)
	set(&o.Retention, 24*time.Hour)
	o.RunTimeout = min(o.RunTimeout, o.MaxRunTimeout)
	if o.MaxSandboxes == 0 {
		o.MaxSandboxes = 64
	}
	if o.MaxRuns == 0 {
		o.MaxRuns = 256
	}
	if o.LogSize == 0 {
		o.LogSize = 64 << 20
	}
	o.LogSize = max(o.LogSize, runlog.MinSize)
	if o.LogsSize == 0 {
		o.LogsSize = 4 << 30
	}
	if o.Runners == nil {
		o.Runners = interpreter.Runners()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.dialGuest == nil {
		o.dialGuest = guestlink.Dial
	}
	if o.Network == "" {
		o.Network = sandbox.NetworkNone
	}
	o.Defaults = o.Defaults.Or(sandbox.DefaultLimits())
	return o
}

// rules returns the rules for requests to an engine with a driver.
func (o Options) rules(info driver.Info) request.Rules {
	return request.Rules{
		Driver: info.Name, Features: info.Features, Workspaces: o.Workspaces != nil,
		Defaults: o.Defaults, Maxima: o.Maxima, Network: o.Network, MaxNetwork: o.MaxNetwork,
		RunTimeout: o.RunTimeout, MaxRunTimeout: o.MaxRunTimeout,
	}
}
