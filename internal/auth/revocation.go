package auth

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// RevocationEvery is how often the server looks for revoked and expired tokens. Any
// process may have revoked them.
const RevocationEvery = 2 * time.Second

// Opened is a set of connections or sessions that continue after their token was
// verified.
type Opened interface {
	// Busy reports whether the set is not empty.
	Busy() bool
	// End closes the connections or sessions for whose identity gone returns
	// true.
	End(gone func(Identity) bool)
}

// A Revocation ends the requests and sessions of tokens that are revoked or
// expire later.
type Revocation struct {
	Auth *Auth
	Log  *slog.Logger
	// A request ends with its own token, and a session with the last token of its
	// identity.
	Requests, Sessions []Opened
}

// Run looks for revoked and expired tokens at intervals until ctx ends.
func (r *Revocation) Run(ctx context.Context) {
	tick := time.NewTicker(RevocationEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !slices.ContainsFunc(r.Requests, Opened.Busy) && !slices.ContainsFunc(r.Sessions, Opened.Busy) {
			continue
		}
		gone, err := r.Auth.Revoked(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.Log.Error("look for revoked tokens", "error", err)
			}
			continue
		}
		// A client may renew its token when its stream ends. Decide about sessions
		// before that.
		for _, o := range r.Sessions {
			o.End(func(id Identity) bool { return gone(r.Auth.Renewed(id)) })
		}
		for _, o := range r.Requests {
			o.End(gone)
		}
	}
}
