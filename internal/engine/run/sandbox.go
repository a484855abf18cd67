package run

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/traffic"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Life is the life of a sandbox, as its runs depend on it. The engine implements
// it.
type Life interface {
	// Status returns the reason for which the sandbox stops or has stopped, or
	// nil. It also returns how many runs are in progress in the sandbox, and how
	// many forwarded requests.
	Status() (why *verdict.Reason, runs, requests int)
	// Ended removes a run from the runs in progress.
	Ended(r *Run)
	// StayAwake keeps the sandbox from being paused until done is called. It reports
	// false if the sandbox is paused already, or stops.
	StayAwake() (done func(), ok bool)
	// Hold keeps the sandbox awake and in use until release is called. MayRest tells
	// that one of its runs may have begun to doze.
	Hold(ctx context.Context) (release func(), err error)
	MayRest()
	// BusyFor keeps the sandbox for d for a run, also if no server is there.
	BusyFor(ctx context.Context, d time.Duration)

	// Dead reports whether the sandbox has certainly died. Lost begins to clean
	// up after it.
	Dead(ctx context.Context) bool
	Lost()
	// Undo gives the sandbox the state of a run's snapshot. The caller is the sandbox's
	// only run, and every other use waits. Forget removes the snapshot, when the run is
	// recorded: a process that takes the run over before needs it.
	Undo(ctx context.Context, snapshot string) error
	Forget(ctx context.Context, snapshot string) error
	// GiveUp begins to stop the sandbox.
	GiveUp(why verdict.Reason)
	// Explain turns the error of an unreachable guest into the reason why the
	// sandbox stopped. It returns err if the sandbox did not stop.
	Explain(ctx context.Context, err error) error

	// Incidents returns the driver's counts for the sandbox. ok is false if there
	// are none.
	Incidents(ctx context.Context) (counts driver.Incidents, ok bool)
	// Policy is the present network policy.
	Policy() sandbox.Network
	// MaxPolicy is the most that the operator allows.
	MaxPolicy() sandbox.Network
}

// SandboxOptions describe a sandbox that has started. All fields are required
// unless they say otherwise.
type SandboxOptions struct {
	ID        string
	Principal sandbox.Principal
	Image     string
	Limits    sandbox.Limits
	Guest     guestlink.Guest
	Mount     *mount.Held       // nil without a workspace
	Copy      *mount.Copy       // nil unless the sandbox has a copy of the workspace
	Traffic   *traffic.Recorder // nil without a network
	Life      Life
}

// A Sandbox is the sandbox of runs.
type Sandbox struct {
	SandboxOptions // never changed
	set            *Set

	blind atomic.Bool // the guest cannot tell changes

	longEvent chan struct{} // has a value while a long event of a run is in memory

	mu       sync.Mutex
	variants map[string]int // by language: the variant of the runner that works
}

// NewSandbox returns the sandbox of runs of this set.
func (s *Set) NewSandbox(o SandboxOptions) *Sandbox {
	return &Sandbox{SandboxOptions: o, set: s, longEvent: make(chan struct{}, 1), variants: map[string]int{}}
}

// stops reports whether the sandbox stops or has stopped.
func (s *Sandbox) stops() bool {
	why, _, _ := s.Life.Status()
	return why != nil
}

// variant returns the variant of a language's runner that worked before.
func (s *Sandbox) variant(language string) (i int, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known = s.variants[language]
	return i, known
}

// setVariant records which variant of a language's runner works.
func (s *Sandbox) setVariant(language string, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.variants[language] = i
}

// forgetVariant undoes setVariant: the interpreter may have been removed.
func (s *Sandbox) forgetVariant(language string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.variants, language)
}

// exec runs one of the engine's own programs in the sandbox and returns its exit
// code.
func (s *Sandbox) exec(ctx context.Context, argv []string) (int, error) {
	_, code, err := guestlink.Capture(ctx, s.Guest, argv)
	return code, err
}
