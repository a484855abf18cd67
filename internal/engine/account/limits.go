package account

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Admit returns a function for [store.Store.AdmitSandbox]. It returns an error of kind
// Exhausted if a principal with those accounts may make no sandbox with these limits now.
func (k *Keeper) Admit(l sandbox.Limits) func([]usage.Account) error {
	return func(accounts []usage.Account) error { return k.refusal(accounts, creation(l)) }
}

// CheckCreate is Admit for a principal. Another sandbox may come first, so the caller
// also calls Admit as it records the sandbox.
func (k *Keeper) CheckCreate(ctx context.Context, p sandbox.Principal, l sandbox.Limits) error {
	return k.check(ctx, p, creation(l))
}

func creation(l sandbox.Limits) usage.Demand {
	return usage.Demand{Action: usage.Create, Memory: l.MemoryBytes, CPUs: usage.Milli(l.CPUs)}
}

// CheckRun returns an error of kind Exhausted if a principal may not start a program now.
func (k *Keeper) CheckRun(ctx context.Context, p sandbox.Principal) error {
	return k.check(ctx, p, usage.Demand{Action: usage.Run})
}

// CheckGrow returns an error of kind Exhausted if nothing may add to a workspace of a
// principal now.
func (k *Keeper) CheckGrow(ctx context.Context, p sandbox.Principal) error {
	return k.check(ctx, p, usage.Demand{Action: usage.Grow})
}

// CheckSnapshot returns an error of kind Exhausted if a principal may take no snapshot
// now. How large a snapshot is, is known when it was taken, so the last one may exceed
// the limit.
func (k *Keeper) CheckSnapshot(ctx context.Context, p sandbox.Principal) error {
	return k.check(ctx, p, usage.Demand{Action: usage.TakeSnapshot})
}

// CheckSave returns an error of kind Exhausted if no sandbox of a principal may be saved
// on disk now. A state that is being saved counts when it is complete.
func (k *Keeper) CheckSave(ctx context.Context, p sandbox.Principal) error {
	return k.check(ctx, p, usage.Demand{Action: usage.Save})
}

func (k *Keeper) check(ctx context.Context, p sandbox.Principal, to usage.Demand) error {
	// WithoutCancel: database/sql starts a goroutine for a context that can end.
	accounts, err := k.opts.Records.Accounts(context.WithoutCancel(ctx), p)
	if err != nil {
		return err
	}
	return k.refusal(accounts, to)
}

// refusal returns the error for the reached limit that is free last, or nil.
func (k *Keeper) refusal(accounts []usage.Account, to usage.Demand) error {
	now := k.opts.Now()
	reached := usage.Reached(accounts, now, to)
	if len(reached) == 0 {
		return nil
	}
	x := reached[0]
	err := sandbox.Errorf(sandbox.Exhausted, "%s", x)
	if x.Free.IsZero() {
		return sandbox.WithHint(err, "%s, or ask the operator to raise the limit with glovebox limit set", remedy(x))
	}
	err = sandbox.WithRetryAfter(err, max(time.Second, x.Free.Sub(now)))
	return sandbox.WithHint(err, "try again from %s on, or ask the operator to raise the limit with glovebox limit set", x.Free.Format(time.RFC3339))
}

// remedy returns what a principal can do at a limit that no time frees.
func remedy(x usage.Excess) string {
	switch {
	case x.Limit == usage.LimitWorkspaceBytes:
		return "remove files by the file operations, delete workspaces"
	case x.Limit == usage.LimitSnapshotBytes:
		return "delete snapshots that are not needed"
	case x.Limit == usage.LimitSavedBytes:
		return "stop hibernated sandboxes that are not needed"
	case x.Asked > x.Max:
		return "ask for less"
	case x.Asked > 0:
		return "ask for less, stop a sandbox that is not needed"
	}
	return "stop a sandbox that is not needed"
}

// Over returns the principals, of those given, that may start no program now, each with
// the reason.
func (k *Keeper) Over(ctx context.Context, principals []sandbox.Principal) (map[sandbox.Principal]error, error) {
	over := map[sandbox.Principal]error{}
	var errs []error
	known := map[sandbox.Principal]bool{}
	for _, p := range principals {
		known[p] = true
	}
	for _, p := range slices.Sorted(maps.Keys(known)) {
		switch err := k.CheckRun(ctx, p); {
		case errors.Is(err, sandbox.Exhausted) && sandbox.RetryAfterOf(err) > 0:
			over[p] = err
		case err != nil:
			errs = append(errs, err)
		}
	}
	return over, errors.Join(errs...)
}
