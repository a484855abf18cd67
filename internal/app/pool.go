package app

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/pool"
	"github.com/glovebox-dev/glovebox/internal/pool/prepare"
)

// openPool makes a pool around the driver, and puts it in the driver's place.
func (s *System) openPool(ctx context.Context) error {
	c := s.opts.Config
	runners, err := Runners(c.Languages)
	if err != nil {
		return err
	}
	interpreters := prepare.Interpreters{Runners: runners, Driver: s.driver}
	var snapshots driver.SnapshotKeeper // nil: no prototypes
	if c.Pool.Prototypes && s.driver.Info().Features.Snapshot {
		if snapshots, err = driver.Snapshots(s.driver); err != nil {
			return err
		}
	}
	s.warmer, err = newWarmer(ctx, s.store, pool.Options{
		Snapshots: snapshots,
		Driver:    s.driver, Shard: c.Server.ShardID(), Ready: interpreters.Start, Further: interpreters.Import, Room: pool.HasRoom,
		Busy: func() bool { return s.Engine.Stats().Runs >= runtime.NumCPU() },
		Max:  c.Pool.Size, Log: s.log, Metrics: s.metrics,
	})
	if err != nil {
		return err
	}
	s.driver = s.warmer
	return nil
}

// warmTime is the timeout of WaitWarm.
const warmTime = time.Minute

// WaitWarm waits until the pool is full and all its boxes are completely warm.
// It returns an error of kind Unavailable after warmTime. Without a pool it
// returns at once.
func (s *System) WaitWarm(ctx context.Context) error {
	if s.warmer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	return s.warmer.WaitFull(ctx)
}

// Warm returns the sandboxes of this driver that servers of the state directory
// have made ahead, or are making. They belong to no principal yet.
func (s *System) Warm(ctx context.Context) ([]string, error) {
	recorded, err := s.store.WarmBoxes(ctx)
	if err != nil {
		return nil, err
	}
	live, err := s.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	var used []string
	for _, r := range live {
		used = append(used, r.Ref)
	}
	d := s.driver
	if s.warmer != nil {
		d = s.warmer.Pool
	}
	return pool.Waiting(ctx, d, recorded, used)
}

// checkPool reports the state of the pool.
func (s *System) checkPool(ctx context.Context) Check {
	c := Check{Name: "pool", Status: CheckOK}
	size := s.opts.Config.Pool.Size
	warm, err := s.Warm(ctx)
	switch {
	case err != nil:
		return failed(c.Name, err)
	case size <= 0:
		c.Status, c.Detail = CheckNote, "servers make no sandboxes ahead: pool.size is 0"
	case s.driver.Info().Features.Metered:
		c.Status, c.Detail = CheckNote, "none are made ahead, because sandboxes of this driver cost money while they exist"
	default:
		c.Detail = fmt.Sprintf("%d made ahead by servers that run; each keeps up to %d, as demand asks", len(warm), size)
	}
	return c
}
