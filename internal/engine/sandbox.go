package engine

import (
	"context"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

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
	guest guest
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

// started reports whether creation has finished without an error.
func (b *liveSandbox) started() bool {
	select {
	case <-b.ready:
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.state != failed
	default:
		return false
	}
}

// view returns the sandbox as its owner sees it.
func (b *liveSandbox) view() sandbox.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.rec.Sandbox
	s.Expires = b.expiresLocked()
	return s
}

// use keeps a sandbox awake and alive until release is called.
func (b *liveSandbox) use(ctx context.Context) (release func(), err error) {
	return b.acquire(ctx, b.touchLocked)
}

// peek keeps a sandbox awake until release is called, as use does. It is for
// calls that only read: the idle time goes on.
func (b *liveSandbox) peek(ctx context.Context) (release func(), err error) {
	return b.acquire(ctx, func() {})
}

// acquire implements use and peek, which differ only in touch. It calls touch
// with b.mu held.
func (b *liveSandbox) acquire(ctx context.Context, touch func()) (release func(), err error) {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b.mu.Lock()
	if err := b.refuseLocked(); err != nil {
		b.mu.Unlock()
		return nil, err
	}
	b.uses++
	b.rest.stop()
	touch()
	hibernated := b.endHibernationLocked()
	b.mu.Unlock()
	release = sync.OnceFunc(func() { b.leave(touch) })
	if err := b.wake(); err != nil {
		release()
		return nil, err
	}
	if hibernated {
		if err := b.recordAwake(ctx); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// touchLocked records a use. b.mu is held.
func (b *liveSandbox) touchLocked() {
	b.rec.Used = b.e.now()
	b.dirty = true
	b.place.Touch()
}

// release ends a use. leave ends what acquire began, with the same touch.
func (b *liveSandbox) release() { b.leave(b.touchLocked) }

func (b *liveSandbox) leave(touch func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses--
	touch()
	b.restLaterLocked()
}

// newLive returns a sandbox that is starting, with one use.
func (e *Engine) newLive(rec store.Sandbox) *liveSandbox {
	return &liveSandbox{
		e: e, id: rec.ID, rec: rec, uses: 1,
		ready:     make(chan struct{}),
		cancel:    func() {},
		runs:      map[string]*run{},
		forwards:  map[*forward]struct{}{},
		networked: rec.Network != sandbox.NetworkNone && rec.Network != "",
		variants:  map[string]int{},
		longLine:  make(chan struct{}, 1),
	}
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
