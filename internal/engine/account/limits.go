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

// Admit returns an error of kind Exhausted if a principal with those accounts may not
// make a sandbox now.
func (k *Keeper) Admit(accounts []usage.Account) error { return k.refusal(accounts, true) }

// CheckCreate is Admit for a principal. Another sandbox may come first, so the caller
// also calls Admit as it records the sandbox.
func (k *Keeper) CheckCreate(ctx context.Context, p sandbox.Principal) error {
	return k.check(ctx, p, true)
}

// CheckRun returns an error of kind Exhausted if a principal may not start a program now.
func (k *Keeper) CheckRun(ctx context.Context, p sandbox.Principal) error {
	return k.check(ctx, p, false)
}

func (k *Keeper) check(ctx context.Context, p sandbox.Principal, creates bool) error {
	// WithoutCancel: database/sql starts a goroutine for a context that can end.
	accounts, err := k.opts.Records.Accounts(context.WithoutCancel(ctx), p)
	if err != nil {
		return err
	}
	return k.refusal(accounts, creates)
}

// refusal returns the error for the reached limit that is free last, or nil.
func (k *Keeper) refusal(accounts []usage.Account, creates bool) error {
	now := k.opts.Now()
	reached := usage.Reached(accounts, now, creates)
	if len(reached) == 0 {
		return nil
	}
	x := reached[0]
	err := sandbox.Errorf(sandbox.Exhausted, "%s", x)
	if x.Free.IsZero() {
		return sandbox.WithHint(err, "stop a sandbox that is not needed, or ask the operator to raise the limit with glovebox limit set")
	}
	err = sandbox.WithRetryAfter(err, max(time.Second, x.Free.Sub(now)))
	return sandbox.WithHint(err, "try again from %s on, or ask the operator to raise the limit with glovebox limit set", x.Free.Format(time.RFC3339))
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
