package app

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// revokedEvery is how often the server looks for tokens that were revoked, by
// this process or another.
const revokedEvery = 2 * time.Second

// opened is what goes on in the name of a token after it was verified.
type opened interface {
	// Busy reports whether there is anything.
	Busy() bool
	// End ends what identities opened for which gone reports true.
	End(gone func(auth.Identity) bool)
}

// A revocation ends what was opened by tokens that are revoked later.
type revocation struct {
	auth *auth.Auth
	log  *slog.Logger
	open []opened
}

// run looks until ctx ends.
func (r *revocation) run(ctx context.Context) {
	tick := time.NewTicker(revokedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !slices.ContainsFunc(r.open, opened.Busy) {
			continue
		}
		gone, err := r.auth.Revoked(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.log.Error("look for revoked tokens", "error", err)
			}
			continue
		}
		for _, o := range r.open {
			o.End(gone)
		}
	}
}
