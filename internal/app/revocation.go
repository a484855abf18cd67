package app

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// revokedEvery is how often the server looks for revoked tokens. Any process may
// have revoked them.
const revokedEvery = 2 * time.Second

// opened is a set of connections or sessions that continue after their token was
// verified.
type opened interface {
	// Busy reports whether the set is not empty.
	Busy() bool
	// End closes the connections or sessions for whose identity gone returns
	// true.
	End(gone func(auth.Identity) bool)
}

// A revocation ends the sessions of tokens that are revoked later.
type revocation struct {
	auth *auth.Auth
	log  *slog.Logger
	open []opened
}

// run looks for revoked tokens at intervals until ctx ends.
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
