package engine

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/briefmap"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/account"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/engine/images"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/places"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/retention"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/snapshot"
	"github.com/glovebox-dev/glovebox/internal/engine/strays"
	"github.com/glovebox-dev/glovebox/internal/engine/traffic"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// The state of an engine, and of its sandboxes.

// An Engine makes and supervises sandboxes.
type Engine struct {
	// Handles has the methods for workspaces that a URL names.
	mount.Handles
	// Keeper has the methods for snapshots.
	*snapshot.Keeper

	opts  Options
	rules request.Rules
	drv   driver.Driver
	// runningLogs and keptLogs share the space for logs.
	runningLogs, keptLogs *fair.Pool
	mounts                *mount.Set
	runs                  *run.Set
	images                *images.Images
	accounts              *account.Keeper
	name                  string          // of drv
	features              driver.Features // of drv
	store                 *store.Store
	owner                 *store.Owner
	log                   *slog.Logger
	logs                  *os.Root // below it, a directory per sandbox

	// ctx ends late in Close, when the sandboxes have stopped or been let go.
	// Close then waits for background.
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup

	places     *places.Places // for sandboxes
	longEvents *fair.Pool     // long events in memory

	sweeping sync.Mutex
	strays   strays.Strays // guarded by sweeping

	hibernation *hibernation.Keeper
	receipts    sharedReceipts
	packing     sync.Mutex // held while states are compressed
	retention   retention.Retention

	mu        sync.Mutex
	closed    bool                    // nothing new begins
	over      bool                    // Close waits only for background; no new work begins
	sandboxes map[string]*liveSandbox // by sandbox ID: the live sandboxes of this process, until they are gone
	adopting  map[string]*adoption
	fileBase  string // URL of the server that serves files of workspaces
}

// A liveSandbox is a sandbox that this process supervises. See sandboxState for
// its life.
type liveSandbox struct {
	e   *Engine
	id  string
	env map[string]string // may hold secrets; never changed once the sandbox is awake
	// image is the image that the driver is asked for; the record has the name
	// that people use.
	image string
	// writable are the writable directories that the box is made with.
	writable []string
	from     *snapshot.From // nil unless it was made of a snapshot

	ready chan struct{}

	// Set before ready is closed, never changed after.
	drv     driver.Box
	guest   guestlink.Guest
	mount   *mount.Held       // nil without a workspace
	copy    *mount.Copy       // nil unless the sandbox has a copy of the workspace
	since   time.Time         // when it was ready
	traffic *traffic.Recorder // nil for a sandbox that was made without a network
	ofRuns  *run.Sandbox      // the sandbox as its runs use it

	changing sync.Mutex // held while the network changes, before mu

	mu       sync.Mutex
	state    sandboxState
	rec      store.Sandbox
	uses     int                            // uses that keep it awake
	stays    int                            // number of StayAwake calls in force; they are no uses
	runs     briefmap.Map[string, *run.Run] // in progress, by their IDs
	forwards briefmap.Map[*forward, struct{}]
	ports    int                // number of forwards that are connections to ports
	why      *verdict.Reason    // why it stops; nil if it does not
	cancel   context.CancelFunc // ends its creation
	teardown *teardown          // the last attempt; nil before the first
	rest     timer              // pauses the sandbox
	lease    timer              // stops the sandbox
	place    *fair.Hold         // among the sandboxes of this process
	packed   time.Time          // when the state was saved that is compressed, as far as it can be
	counted  time.Time          // when the state was saved after which its use was counted
	dirty    bool               // rec.Used is newer than the store's
	waking   *waking            // nil unless it is being woken
	kills    int                // memory kills counted so far
	// busyUntil is when the longest of its runs ends at the latest. It is zero if the
	// idle limit covers all of them.
	busyUntil time.Time

	leasing sync.Mutex // held while the driver is told the lease; it comes before mu

	power  sync.Mutex // held while it is paused or resumed
	paused bool       // guarded by power
	saved  bool       // it is paused, and may be saved on disk; guarded by power
	// envLater means that wake reads env; guarded by power
	envLater bool
	woke     time.Time // when it was last resumed; guarded by power
}

// A teardown is one attempt to destroy a box.
type teardown struct {
	done chan struct{}
	err  error // set before done is closed
}

// A timer is a time.AfterFunc that is created at its first use.
type timer struct{ t *time.Timer }

func (t *timer) set(d time.Duration, f func()) {
	if t.t == nil {
		t.t = time.AfterFunc(d, f)
		return
	}
	t.t.Reset(d)
}

func (t *timer) stop() {
	if t.t != nil {
		t.t.Stop()
	}
}

// A forward is a request that the guest answers directly, until the body of its
// response is closed, or a connection to a port.
type forward struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// An adoption is one attempt to take over a sandbox.
type adoption struct {
	done chan struct{}
	b    *liveSandbox
	err  error
}

// isClosed reports whether Close has begun.
func (e *Engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// spawn runs f in the background and reports whether it does: not once Close
// has begun. Use it for work that no caller waits for.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.background.Go(f)
	return true
}

// work is like spawn, but also runs f while Close is in progress. Use it for
// work that belongs to something that Close waits for.
func (e *Engine) work(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return false
	}
	e.background.Go(f)
	return true
}

// now returns the current time with the precision of records.
func (e *Engine) now() time.Time {
	return time.UnixMicro(e.opts.Now().UnixMicro()).UTC()
}

// live returns the live of this process with that identifier, or nil.
func (e *Engine) live(id string) *liveSandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sandboxes[id]
}

// all returns the live sandboxes of this process.
func (e *Engine) all() []*liveSandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.sandboxes))
}

// missing returns the error for a language that an image lacks. The host image
// of a remote driver is not this machine's system, so its hint is another.
func (e *Engine) missing(image string, from func(image string) error) error {
	err := from(image)
	if image == sandbox.ImageHost && e.features.Remote {
		return sandbox.WithHint(err, "use an image of driver %s that has it", e.name)
	}
	return err
}
