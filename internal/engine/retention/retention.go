// Package retention removes records and logs that have been kept for long enough.
//
// Only the engine imports it, whose sweeps use its one [Retention].
package retention

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A Retention says how long records and logs are kept. It holds no state.
type Retention struct {
	Store *store.Store
	// Logs has a directory for each sandbox.
	Logs *os.Root
	// SweepLogs removes logs of runs beyond the space for them.
	SweepLogs func(ctx context.Context) error
	// After is how long records are kept after their run or sandbox has ended.
	After time.Duration
	// Connections bounds the connections on record.
	Connections int
	Now         func() time.Time
}

// Revoked tokens stay on record for RevokedTime, at most maxRevoked of them.
const (
	RevokedTime = 90 * 24 * time.Hour
	maxRevoked  = 1000
)

// Sweep removes records and logs that are past their retention time.
func (r Retention) Sweep(ctx context.Context) error {
	// List the directories before the records: a record is written before its
	// directory.
	dirs, err := r.logDirs()
	if err != nil {
		return sandbox.Wrap(err, "sweep logs", "")
	}
	before := r.Now().Add(-r.After)
	var errs []error
	runs, err := r.Store.RunsEndedBefore(ctx, before)
	errs = append(errs, err)
	for _, run := range runs {
		errs = append(errs, runlog.FilesOf(r.Logs, run.SandboxID, run.ID).Remove(), r.Store.DeleteRun(ctx, run.ID))
	}
	errs = append(errs, r.SweepLogs(ctx), r.Store.ForgetConnections(ctx, r.Connections), r.Store.ForgetKeys(ctx),
		r.Store.ForgetTokens(ctx, r.Now().Add(-RevokedTime), maxRevoked))
	ids, err := r.Store.SandboxesEndedBefore(ctx, before)
	errs = append(errs, err)
	for _, id := range ids {
		errs = append(errs, r.Store.DeleteSandbox(ctx, id))
	}
	for _, id := range dirs {
		if _, err := r.Store.Sandbox(ctx, id); errors.Is(err, sandbox.NotFound) {
			errs = append(errs, r.Logs.RemoveAll(id))
		} else {
			errs = append(errs, err)
		}
	}
	return sandbox.Wrap(errors.Join(errs...), "sweep old records", "")
}

// logDirs returns the sandboxes that have logs.
func (r Retention) logDirs() ([]string, error) {
	d, err := r.Logs.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
