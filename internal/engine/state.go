package engine

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/images"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// The state of an engine: its sandboxes, and their runs.

// An Engine makes and supervises sandboxes.
type Engine struct {
	opts  Options
	rules request.Rules
	drv   driver.Driver
	// runningLogs and keptLogs share the space for logs.
	runningLogs, keptLogs *fair.Pool
	shelf                 *runlog.Shelf // of keptLogs
	mounts                *mount.Set
	images                *images.Images
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

	// places are for boxes. admission ends when Close begins: from then on no
	// box gets a place.
	places    *fair.Pool
	longLines *fair.Pool      // long events in memory
	admission context.Context //nolint:containedctx // the end of waiting, not a caller's
	dismiss   context.CancelFunc

	sweeping sync.Mutex
	strays   map[string]time.Time // guarded by sweeping: see sweepStrays

	mu        sync.Mutex
	closed    bool                    // nothing new begins
	over      bool                    // Close waits only for background; no new work begins
	sandboxes map[string]*liveSandbox // by sandbox ID: the live sandboxes of this process, until they are gone
	runs      map[string]*run         // by run ID: runs in progress here, and the last few that ended
	finished  []string                // IDs of the runs that ended, oldest first
	adopting  map[string]*adoption
	fileBase  string // URL of the server that serves files of workspaces
}

// A liveSandbox is a sandbox that this process supervises. See sandboxState for
// its life.
type liveSandbox struct {
	e   *Engine
	id  string
	env map[string]string // may hold secrets; never changed
	// image is the image that the driver is asked for; the record has the name
	// that people use.
	image string
	// writable are the writable directories that the box is made with.
	writable []string

	ready  chan struct{}
	cancel context.CancelFunc // ends its creation

	// Set before ready is closed, never changed after.
	drv   driver.Box
	guest guestlink.Guest
	mount *mount.Mount // nil without a workspace
	copy  *mount.Copy  // nil unless the box has a copy of the workspace
	since time.Time    // when it was ready

	mu       sync.Mutex
	state    sandboxState
	rec      store.Sandbox
	uses     int // uses that keep it awake
	stays    int // number of StayAwake calls in force; they are no uses
	runs     map[string]*run
	forwards map[*forward]struct{}
	ports    int             // number of forwards that are connections to ports
	why      *verdict.Reason // why it stops; nil if it does not
	teardown *teardown       // the last attempt; nil before the first
	rest     timer           // pauses the box
	lease    timer           // stops the box
	place    *fair.Hold      // among the boxes of this process
	dirty    bool            // rec.Used is newer than the store's
	kills    int             // memory kills counted so far
	variants map[string]int

	networked      bool       // it has a network, even if its policy changed since; never changed
	recording      sync.Mutex // held while the record of its connections is updated
	recordRead     bool       // guarded by recording: lastConnection was read from the store
	lastConnection int64      // likewise

	longLine chan struct{} // has a value while a long event of a run is in memory

	power  sync.Mutex // held while it is paused or resumed
	paused bool       // guarded by power
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

// A run is in progress in a box of this process, or ended a moment ago. Its
// pump reads the events of its process, and only the pump finishes it.
type run struct {
	b       *liveSandbox
	input   bool // the program has an input
	log     *runlog.Log
	room    *runlog.Room    // of the log and the results
	codeDir string          // directory of its code, to be removed; "" if there is none
	plain   bool            // a shell command that runs without a shell
	x       *execution      // nil unless the run is in a context
	results *runlog.Results // results of a run in a context, and pictures of any run

	ctx     context.Context // of its stream
	cancel  context.CancelFunc
	release func() // its use of the box

	span, going *trace.Active // of the whole run, and of its program
	language    string        // of its runner; noLanguage for a command

	workspace *mount.Baseline // nil without a workspace
	keeper    baselineFile    // keeps workspace for the next process

	baseline chan struct{} // closed when before and counted are set
	before   driver.Incidents
	counted  bool

	reached       []sandbox.Destination // hosts that the sandbox reached before the run began
	countsReached bool

	done chan struct{} // closed when the run has finished, or is let go

	mu       sync.Mutex
	rec      store.Run // its identity and request never change
	state    runState
	deadline *time.Timer
	fate     verdict.Fate
	broken   error
}

// An execution is the additional state of a run in a context. The guest keeps
// the run by its identifier. It queues the run and interrupts it when its time
// is over. The run continues there when this process ends.
type execution struct {
	late string // source of the last output written, if that was late output; else ""

	// Guarded by the run's mu.
	began bool // its turn has come
	waits *sandbox.InputRequest
	fail  *sandbox.RunError
	end   *guestapi.ExecutionEnd
}

// A baselineFile is the state of saving a run's baseline.
type baselineFile struct {
	timer *time.Timer // nil for a run that cannot outlive the process

	mu   sync.Mutex
	kept bool
	over bool // the run has ended
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

// maxWaiting bounds the calls of one principal that wait for a place.
const maxWaiting = 256

// newPlaces returns the pool of places for sandboxes.
func newPlaces(o Options) *fair.Pool {
	return fair.New(fair.Options{
		Name: "sandboxes", Total: int64(o.MaxSandboxes),
		MaxWaiting: maxWaiting, RetryAfter: max(time.Second, o.EvictAfter),
	})
}

// maxLongLines is how many events of more than a MiB may be in memory at once. Each
// takes a few times its size, of at most 40 MiB, until its result is kept.
const maxLongLines = 4

func newLongLines() *fair.Pool {
	return fair.New(fair.Options{Name: "long events of runs", Total: maxLongLines})
}

// keepFinished is how many finished runs stay in memory: most questions about a
// run come right after its end.
const keepFinished = 64

// retire keeps a finished run in memory until keepFinished later ones have
// ended.
func (e *Engine) retire(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.finished = append(e.finished, id)
	if len(e.finished) > keepFinished {
		delete(e.runs, e.finished[0])
		e.finished = e.finished[1:]
	}
}

// forgetRun forgets a finished run whose log was removed.
func (e *Engine) forgetRun(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.runs, id)
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

// files names the files of the run.
func (r *run) files() runlog.Files { return runlog.FilesOf(r.b.e.logs, r.b.id, r.rec.ID) }
