package app

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// revokedEvery is how often the server looks for revoked and expired tokens. Any
// process may have revoked them.
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

// A revocation ends the requests and sessions of tokens that are revoked or
// expire later.
type revocation struct {
	auth *auth.Auth
	log  *slog.Logger
	// A request ends with its own token, and a session with the last token of its
	// identity.
	requests, sessions []opened
}

// run looks for revoked and expired tokens at intervals until ctx ends.
func (r *revocation) run(ctx context.Context) {
	tick := time.NewTicker(revokedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !slices.ContainsFunc(r.requests, opened.Busy) && !slices.ContainsFunc(r.sessions, opened.Busy) {
			continue
		}
		gone, err := r.auth.Revoked(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.log.Error("look for revoked tokens", "error", err)
			}
			continue
		}
		// A client may renew its token when its stream ends. Decide about sessions
		// before that.
		for _, o := range r.sessions {
			o.End(func(id auth.Identity) bool { return gone(r.auth.Renewed(id)) })
		}
		for _, o := range r.requests {
			o.End(gone)
		}
	}
}
