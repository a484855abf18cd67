package contexts

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
)

// The types of this file refer to each other: a context has an interpreter and a
// run, and each of them has the context. Their methods are in the other files.

// A Server serves the contexts of a sandbox. Its methods are safe for concurrent
// use.
type Server struct {
	accounts  *account.Accounts
	processes *process.Set
	preview   Preview
	asSelf    bool // interpreters run as the guest's own user
	before    func(tag string)
	watch     func(dir string)
	registry  registry

	defaultsTurn sync.Mutex
	hasDefaults  bool // forE2B has made the default contexts; guarded by defaultsTurn
}

// Preview returns the preview of a picture of size bytes, or nil if models can
// be shown the picture as it is. Closing done ends the work.
type Preview func(done <-chan struct{}, a *account.Account, mime string, size int64, open func() io.Reader) ([]byte, error)

// A registry holds the contexts of a sandbox by their names, and the kept runs
// by their tags.
type registry struct {
	mu    sync.Mutex
	byID  map[string]*context
	made  int             // how many contexts were added
	byTag map[string]*run // kept runs only
	ended []*run          // kept runs that have ended, oldest first
}

// A context is an interpreter that keeps its state between runs. If the
// interpreter died, the next run starts another.
type context struct {
	server  *Server
	id      string
	program kernels.Program
	account *account.Account
	number  int    // in the order of making; guarded by the registry's mu
	cwd     string // where interpreters start
	dir     string // the directory that cwd stands for, if it is known; guarded by mu
	env     map[string]string
	prepare []string

	turn chan struct{} // has a value while no run is under way

	mu      sync.Mutex
	live    *interpreter // nil if there is none; guarded by mu
	lost    string       // why the last one died; empty when a run has reported it
	run     *run         // under way, if one is
	runs    int
	base    map[string]string // environment that the next run adds permanently
	moved   bool              // the first run that begins must put the interpreter in its place: see adopt
	removed bool
	queued  int        // kept runs that wait for their turn
	late    lateOutput // output that came between runs
}

// An interpreter is the process of a context.
type interpreter struct {
	context *context
	process *process.Process
	env     map[string]string // with which it was started
	command string
	key     string

	requests *os.File // for writing; requestTurn is held
	events   *os.File
	outputs  [2]outlet // for reading
	quit     int       // an eventfd that ends the reading
	code     *os.File  // of a shell: the code of the run
	stdin    *os.File  // of a shell: for writing
	version  string    // guarded by context.mu
	missing  string    // what the sandbox lacks for the kernel; guarded by context.mu
	dir      string    // where it is, or will be for its first run; guarded by context.mu
	runs     int       // guarded by context.mu

	peakBytes   atomic.Int64
	requestTurn sync.Mutex
	// order is held while output or an event is read and delivered. It keeps
	// output in front of the event that follows it.
	order     sync.Mutex
	assembler kernels.Assembler
	partial   []byte // of a pipe of events: the beginning of a message
	junk      int

	ready    chan struct{} // closed when the kernel is ready
	prepared chan struct{} // has a value when the kernel has prepared
	dead     chan struct{} // closed when the interpreter is gone
}

// An outlet is one of an interpreter's two outputs. Its fields are guarded by
// the interpreter's order.
type outlet struct {
	fd     int // -1 when it has ended
	stream guestapi.Stream
	part   []byte // an incomplete character or line at the end of the last read
}

// A run is code that runs in a context for a caller, to which its events go. If
// the caller leaves, the events are dropped and the run is interrupted.
//
// A kept run has a tag. It is known by its tag until a caller took its end. Its
// caller does not wait for its turn. If the caller leaves, the run goes on, and
// its events wait for another caller.
type run struct {
	context     *context
	interpreter *interpreter // set before it begins
	id          int
	req         *guestapi.ExecuteRequest
	e2b         bool // the caller knows E2B's events only

	over bool // its end was reported; guarded by context.mu

	withdrawn chan struct{} // of a kept run: closed if it must not begin
	hurried   chan struct{} // closed to stop the making of previews

	// The number of previews, and the time they took; guarded by the interpreter's order.
	previews   int
	previewing time.Duration

	mu          sync.Mutex
	space       sync.Cond     // signalled when unsent shrinks, or the caller is gone
	unsent      []byte        // events, encoded
	news        chan struct{} // has a value when there may be something in unsent
	gone        bool          // the caller has left
	begun       bool          // its turn has come
	isWithdrawn bool          // withdrawn is closed
	isHurried   bool          // hurried is closed
	carrier     chan struct{} // closed when another caller takes the events
	finished    bool          // the end is in unsent
	cause       string
	why         guestapi.ExecutionEnd // the reasons of an interrupt
	killed      bool
	// held is the end of a run whose shell executes itself anew. It is sent when
	// the shell is ready, because the next run cannot begin before.
	held    *guestapi.ExecutionEnd
	timers  []*time.Timer
	failed  bool   // the error was sent
	failure string // its text, from which endedLocked finds the reason
	began   time.Time
	cpu     time.Duration // processor time of the interpreter at the begin

	stdin struct {
		text    []byte
		eof     bool
		waiting bool
	}
}
