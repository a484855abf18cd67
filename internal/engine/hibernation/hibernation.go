// Package hibernation saves sandboxes on disk and wakes them: when, how many at a
// time, and the record of it.
//
// Only the engine imports it. It makes one [Keeper], which has no resources that need
// to be released. The engine decides which sandbox is saved or woken, and calls the
// keeper for one sandbox at a time.
package hibernation

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Settings are the operator's.
type Settings struct {
	// Disk means that hibernated sandboxes are saved on disk, if the driver can.
	Disk bool
	// After is how long a sandbox is unused before it is saved; zero is never.
	After time.Duration
	// Keep is how long a saved sandbox is kept; zero is until its lifetime ends.
	Keep time.Duration
	// Space is how many bytes of saved states there are before no more sandboxes are
	// saved; zero is no limit.
	Space int64
	// CompressAfter is how long a state is saved before it is compressed; zero is never.
	CompressAfter time.Duration
	// Kept returns the bytes of what saved states need besides, which count too; nil is
	// none.
	Kept func() (int64, error)
}

// Records keeps the records of saved states.
type Records interface {
	PackedState(ctx context.Context, id string, saved time.Time, bytes int64) error
	SetHibernation(ctx context.Context, id string, h sandbox.Hibernation) error
	SavedStates(ctx context.Context) ([]store.SavedStates, error)
}

// Options are the parameters of [New].
type Options struct {
	Settings
	Records Records
	// Check returns an error if no sandbox of a principal may be saved now.
	Check   func(context.Context, sandbox.Principal) error
	Log     *slog.Logger
	Metrics *metrics.Set
	Now     func() time.Time
}

// A Keeper saves and wakes the sandboxes of one engine. Its methods are safe for
// concurrent use.
type Keeper struct {
	Options
	// gate is for saves and wakes: more at the same time would only make all slower.
	gate *fair.Pool
}

// The bounds of the queue for the gate.
const (
	perCPU     = 2
	maxWaiting = 4096 // of one principal
)

// New returns a keeper.
func New(o Options) *Keeper {
	return &Keeper{Options: o, gate: fair.New(fair.Options{
		Name: "wakes", Total: int64(perCPU * runtime.GOMAXPROCS(0)), MaxWaiting: maxWaiting, RetryAfter: time.Second,
	})}
}

// Stats returns the statistics of the queue for saves and wakes.
func (k *Keeper) Stats() fair.Stats { return k.gate.Stats() }

// A Box is a sandbox to save or to wake. The keeper changes Hibernation.
type Box struct {
	ID        string
	Principal sandbox.Principal
	Driver    driver.Box
	// Hibernation is what the record of the sandbox has.
	Hibernation *sandbox.Hibernation
}

// enter waits for the gate.
func (k *Keeper) enter(ctx context.Context, b Box) (*fair.Hold, error) {
	return k.gate.Acquire(ctx, fair.Request{Principal: b.Principal, Units: 1})
}

// Save saves a sandbox on disk. If that fails, the sandbox runs on, and its record says
// why it could not be saved.
func (k *Keeper) Save(ctx context.Context, b Box) error {
	saved, err := k.save(ctx, b)
	k.Metrics.Hibernated(saved.Stood, err)
	if err != nil {
		k.failed(ctx, b, "save sandbox on disk", err)
		return err
	}
	*b.Hibernation = sandbox.Hibernation{Saved: k.Now(), Bytes: saved.Bytes, Build: saved.Build}
	k.record(ctx, b)
	k.Log.Info("sandbox hibernates on disk", "sandbox", b.ID, "bytes", saved.Bytes, "stood", saved.Stood)
	return nil
}

func (k *Keeper) save(ctx context.Context, b Box) (driver.Saved, error) {
	hold, err := k.enter(ctx, b)
	if err != nil {
		return driver.Saved{}, err
	}
	defer hold.Release()
	if err := k.Check(ctx, b.Principal); err != nil {
		return driver.Saved{}, err
	}
	if k.Space > 0 {
		total, err := k.Total(ctx)
		if err != nil {
			return driver.Saved{}, err
		}
		if k.Kept != nil {
			kept, err := k.Kept()
			if err != nil {
				return driver.Saved{}, err
			}
			total.Bytes += kept
		}
		if total.Bytes >= k.Space {
			return driver.Saved{}, sandbox.WithHint(
				sandbox.Errorf(sandbox.Exhausted, "saved sandboxes use %s, and this server may use %s for them", sandbox.FormatBytes(total.Bytes), sandbox.FormatBytes(k.Space)),
				"stop sandboxes that are not needed, or raise sandbox.hibernate_space")
		}
	}
	return driver.Save(ctx, b.Driver)
}

// Wake resumes a sandbox that is saved, or only paused.
func (k *Keeper) Wake(ctx context.Context, b Box) error {
	if b.Hibernation.Saved.IsZero() {
		return driver.Resume(ctx, b.Driver)
	}
	begun := time.Now()
	hold, err := k.enter(ctx, b)
	if err == nil {
		err = driver.Resume(ctx, b.Driver)
		hold.Release()
	}
	k.Metrics.Woken(time.Since(begun), err)
	if err != nil {
		k.failed(ctx, b, "wake sandbox", err)
		return err
	}
	k.Log.Info("sandbox woke from disk", "sandbox", b.ID, "asleep", k.Now().Sub(b.Hibernation.Saved), "took", time.Since(begun))
	*b.Hibernation = sandbox.Hibernation{}
	k.record(ctx, b)
	return nil
}

// Cold reports whether it is time to compress a saved state.
func (k *Keeper) Cold(h sandbox.Hibernation) bool {
	return k.CompressAfter > 0 && !h.Saved.IsZero() && k.Now().Sub(h.Saved) >= k.CompressAfter
}

// Pack compresses a saved state. It returns the new size, or false if the state was used
// meanwhile: it may be cold again later.
func (k *Keeper) Pack(ctx context.Context, b Box) (bytes int64, done bool) {
	was := *b.Hibernation
	bytes, err := driver.Pack(ctx, b.Driver)
	if err != nil || bytes != was.Bytes {
		k.Metrics.Compressed(err)
	}
	switch {
	case err == nil && bytes == was.Bytes:
		return bytes, true // it was packed before
	case err == nil:
		k.Log.Info("compressed the state of a sandbox", "sandbox", b.ID, "from", was.Bytes, "to", bytes)
		if err := k.Records.PackedState(ctx, b.ID, was.Saved, bytes); err != nil {
			k.Log.Error("record hibernation", "sandbox", b.ID, "error", err)
		}
		return bytes, true
	case sandbox.KindOf(err) == sandbox.Conflict || ctx.Err() != nil || driver.IsGone(err):
		return was.Bytes, false
	case sandbox.KindOf(err) == sandbox.Unsupported:
		k.Log.Debug("the state of a sandbox is not compressed", "sandbox", b.ID, "error", err)
	default:
		k.Log.Warn("compress the state of a sandbox", "sandbox", b.ID, "error", err)
	}
	return was.Bytes, true
}

// failed notes why a sandbox could not be saved or woken.
func (k *Keeper) failed(ctx context.Context, b Box, what string, err error) {
	k.Log.Warn("saving or waking a sandbox failed", "step", what, "sandbox", b.ID, "error", err)
	b.Hibernation.Error, b.Hibernation.Failed = err.Error(), k.Now()
	k.record(context.WithoutCancel(ctx), b)
}

// recordTime bounds the writing of a record.
const recordTime = 10 * time.Second

// record stores the hibernation of a sandbox. If that fails, only the figures of the
// state are wrong: what the sandbox does depends on the driver.
func (k *Keeper) record(ctx context.Context, b Box) {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	if err := k.Records.SetHibernation(ctx, b.ID, *b.Hibernation); err != nil {
		k.Log.Error("record hibernation", "sandbox", b.ID, "error", err)
	}
}

// Total returns the sum of all saved states of the state directory.
func (k *Keeper) Total(ctx context.Context) (sum store.SavedStates, err error) {
	list, err := k.Records.SavedStates(ctx)
	for _, st := range list {
		sum.Count, sum.Bytes = sum.Count+st.Count, sum.Bytes+st.Bytes
		if sum.Oldest.IsZero() || st.Oldest.Before(sum.Oldest) {
			sum.Oldest = st.Oldest
		}
	}
	return sum, err
}

// Due reports whether it is time to save a sandbox that nothing uses. After a failure,
// that is when it has been unused for as long again.
func (k *Keeper) Due(s *sandbox.Sandbox) bool {
	since := s.Used
	if s.Hibernation.Failed.After(since) {
		since = s.Hibernation.Failed
	}
	return k.Disk && k.After > 0 && !s.Restless && s.State == sandbox.Running && k.Now().Sub(since) >= k.After
}

// Refused reports whether the sandbox could not be saved since its last use.
func Refused(s *sandbox.Sandbox) bool { return s.Hibernation.Failed.After(s.Used) }

// Over returns why a sandbox ends that has been saved for too long, or "".
func (k *Keeper) Over(s *sandbox.Sandbox) string {
	if k.Keep <= 0 || s.Hibernation.Saved.IsZero() || k.Now().Sub(s.Hibernation.Saved) < k.Keep {
		return ""
	}
	return "the sandbox hibernated for " + k.Keep.String() + ", and was not used"
}

// Expires returns when a sandbox stops that stops at end otherwise.
func (k *Keeper) Expires(s *sandbox.Sandbox, end time.Time) time.Time {
	if kept := s.Hibernation.Saved.Add(k.Keep); k.Keep > 0 && !s.Hibernation.Saved.IsZero() && kept.Before(end) {
		return kept
	}
	return end
}
