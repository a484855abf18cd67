// Package account measures what sandboxes use, counts it for their principals, and
// checks the limits of principals and groups.
//
// The engine makes one [Keeper]. It reads a sandbox before and after the end of its box,
// and all of them in each sweep. A measurement is the total since the box began, and the
// store counts what is new in it. So a measurement that a killed process did not record is in the next
// one. A Keeper has no state and no locks of its own.
package account

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/traffic"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

const (
	// readingTime bounds how long a driver may take for a measurement.
	readingTime = 5 * time.Second
	// atOnce is how many boxes are read at the same time.
	atOnce = 16
	// storageEvery is how long the size of an unchanged workspace is not counted.
	storageEvery = 10 * time.Minute
	// keepHours and keepDays are how long the sums of hours and days are kept.
	keepHours = 35 * usage.Day
	keepDays  = 400 * usage.Day
)

// Options configure a Keeper. All fields are required.
type Options struct {
	Records *store.Store
	Log     *slog.Logger
	Now     func() time.Time
}

// A Keeper counts what sandboxes use.
type Keeper struct{ opts Options }

// New returns a Keeper.
func New(o Options) *Keeper { return &Keeper{o} }

// A Box is the box of a sandbox that exists.
type Box struct {
	ID  string // of the sandbox
	Box driver.Box
	// Traffic records the connections of the box; nil reads its traffic only.
	Traffic *traffic.Recorder
	// Rests means that the box has used nothing since it was read: it is on the disk. Its
	// driver is not asked.
	Rests bool
}

// Counts reports whether the host kernel counts the CPU time of a box.
func (k *Keeper) Counts(ctx context.Context, box driver.Box) bool {
	ctx, cancel := context.WithTimeout(ctx, readingTime)
	defer cancel()
	_, ok, err := driver.ReadUsage(ctx, box)
	if err != nil {
		k.opts.Log.Warn("measure CPU time of a new box", "error", err)
	}
	return ok
}

// Read measures what a sandbox has used. What its driver does not answer is left to the
// next measurement.
func (k *Keeper) Read(ctx context.Context, b Box) store.Reading {
	r := store.Reading{SandboxID: b.ID, Until: k.opts.Now()}
	if b.Rests {
		return r // its time counts
	}
	ctx, cancel := context.WithTimeout(ctx, readingTime)
	defer cancel()
	u, _, err := driver.ReadUsage(ctx, b.Box)
	if err != nil && !driver.IsGone(err) {
		k.opts.Log.Warn("measure CPU time", "sandbox", b.ID, "error", err)
	}
	r.BoxCPUMillis = u.CPU.Milliseconds()
	for _, d := range k.reached(ctx, b) {
		r.SentBytes += d.Sent
		r.ReceivedBytes += d.Received
	}
	return r
}

// ReadEnded adds to r, the last reading of a sandbox that lived, the end of its box:
// b is destroyed. Without an answer of the driver, r stays.
func (k *Keeper) ReadEnded(ctx context.Context, b Box, r *store.Reading) {
	u, _, err := driver.ReadUsage(ctx, b.Box)
	if err != nil && !driver.IsGone(err) {
		k.opts.Log.Warn("measure CPU time of a box that has ended", "sandbox", b.ID, "error", err)
	}
	r.BoxCPUMillis = max(r.BoxCPUMillis, u.CPU.Milliseconds())
}

// ReadGone returns what the gone box ref of a sandbox had used, as far as its driver
// knows. The time of its end is not known.
func (k *Keeper) ReadGone(ctx context.Context, d driver.Driver, ref string) store.Reading {
	ctx, cancel := context.WithTimeout(ctx, readingTime)
	defer cancel()
	u, _, err := driver.ReadLastUsage(ctx, d, ref)
	if err != nil {
		k.opts.Log.Warn("measure CPU time of a box that is gone", "ref", ref, "error", err)
	}
	var r store.Reading
	r.BoxCPUMillis = u.CPU.Milliseconds()
	return r
}

// Loads returns what sandboxes use at the moment, by their identifiers. Those that no
// driver measures are missing.
func (k *Keeper) Loads(ctx context.Context, boxes []Box) map[string]sandbox.Load {
	ctx, cancel := context.WithTimeout(ctx, readingTime)
	defer cancel()
	var (
		mu   sync.Mutex
		read sync.WaitGroup
	)
	loads, turns := map[string]sandbox.Load{}, make(chan struct{}, atOnce)
	for _, b := range boxes {
		read.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			u, ok, err := driver.ReadUsage(ctx, b.Box)
			if err != nil || !ok {
				return // the box ends, or nothing counts its usage
			}
			mu.Lock()
			defer mu.Unlock()
			loads[b.ID] = sandbox.Load{CPU: u.CPU, MemoryBytes: u.Memory}
		})
	}
	read.Wait()
	return loads
}

func (k *Keeper) reached(ctx context.Context, b Box) []sandbox.Destination {
	if b.Traffic != nil {
		reached, _ := b.Traffic.Read(ctx)
		return reached
	}
	t, _, err := driver.ReadTraffic(ctx, b.Box, math.MaxInt64)
	if err != nil && !driver.IsGone(err) {
		k.opts.Log.Debug("measure traffic", "sandbox", b.ID, "error", err)
	}
	return t.Destinations
}

// Sweep counts what the sandboxes used since they were read last, and the sizes of
// workspaces. It removes old sums.
func (k *Keeper) Sweep(ctx context.Context, boxes []Box) error {
	readings := make([]store.Reading, len(boxes))
	places := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, b := range boxes {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			readings[i] = k.Read(ctx, b)
		})
	}
	wg.Wait()
	now := k.opts.Now()
	if err := k.opts.Records.Meter(ctx, readings); err != nil {
		return err
	}
	if err := k.opts.Records.MeterWorkspaces(ctx, now.Add(-storageEvery)); err != nil {
		return err
	}
	return k.opts.Records.ForgetUsage(ctx, now.Add(-keepHours), now.Add(-keepDays))
}
