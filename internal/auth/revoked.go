package auth

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Revoked returns a function that reports whether an identity's token has been
// revoked, by any process, or expired at least a minute ago. The same holds for a
// grant that ended. An identity without
// a token counts as revoked when the last token of its principal is revoked.
// Identities that no token of the store proved are never revoked.
func (a *Auth) Revoked(ctx context.Context) (func(Identity) bool, error) {
	list, err := a.List(ctx)
	if err != nil {
		return nil, err
	}
	tokens, principals := map[string]bool{}, map[sandbox.Principal]bool{} // true is in force
	for _, t := range list {
		inForce := t.Revoked.IsZero()
		tokens[t.ID] = inForce
		principals[t.Principal] = principals[t.Principal] || inForce
	}
	grants := map[string]bool{}
	if a.grants != nil {
		list, err := a.grants.Grants(ctx)
		if err != nil {
			return nil, err
		}
		for _, g := range list {
			grants[g.ID] = true
		}
	}
	a.forgetExpired()
	return func(id Identity) bool {
		if id.expired(a.now()) || id.Grant != "" && !grants[id.Grant] {
			return true
		}
		if id.Token != "" {
			return !tokens[id.Token]
		}
		return strings.HasPrefix(string(id.Principal), sandbox.TokenPrefix) && !principals[id.Principal]
	}, nil
}

// goneEvery is the maximum age of the data that Gone uses.
const goneEvery = time.Second

// Gone reports whether an identity was revoked, as [Auth.Revoked] does. The
// answer may be up to a second old.
func (a *Auth) Gone(ctx context.Context, id Identity) (bool, error) {
	a.goneMu.Lock()
	defer a.goneMu.Unlock()
	if now := a.now(); a.gone == nil || now.Sub(a.goneAt) >= goneEvery {
		gone, err := a.Revoked(ctx)
		if err != nil {
			return false, err
		}
		a.gone, a.goneAt = gone, now
	}
	return a.gone(id), nil
}

// Renewed returns an identity with the latest expiry of all tokens verified for
// its principal and scopes. A session must last as long: each of its requests has
// a token of its own, and clients renew their tokens.
func (a *Auth) Renewed(id Identity) Identity {
	a.mu.Lock()
	defer a.mu.Unlock()
	if latest := a.expires[id.Key()]; !id.Expires.IsZero() && latest.After(id.Expires) {
		id.Expires = latest
	}
	return id
}

// forgetExpired removes the expiries that have passed. They extend no session.
func (a *Auth) forgetExpired() {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.expires, func(_ string, expires time.Time) bool { return Identity{Expires: expires}.expired(now) })
}
