package auth

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A standing is the state of all tokens and grants at one time.
type standing struct {
	at         time.Time
	tokens     map[string]tokenState
	principals map[sandbox.Principal]bool // true has a token in force
	grants     map[string]bool            // in force
}

// A tokenState is what a standing has of a token.
type tokenState struct {
	inForce   bool
	rotations int
	// until is until when the text of before the last rotation is valid.
	until time.Time
}

// has reports whether an identity of the token still stands at now.
func (t tokenState) has(id Identity, now time.Time) bool {
	switch {
	case !t.inForce || id.Grant != "":
		return t.inForce // a grant is the token's, whatever its text
	case id.Rotation == t.rotations-1:
		return now.Before(t.until)
	}
	return id.Rotation >= t.rotations
}

// Revoked returns a function that reports whether an identity's token has been
// revoked, by any process, or expired at least a minute ago. The same holds for the
// text of before a rotation when its grace has passed, and for a grant that ended. An identity without
// a token counts as revoked when the last token of its principal is revoked.
// Identities that no token of the store proved are never revoked. Later answers of
// [Auth.Gone] are at least as new.
func (a *Auth) Revoked(ctx context.Context) (func(Identity) bool, error) {
	a.goneMu.Lock()
	defer a.goneMu.Unlock()
	s, err := a.readStandingLocked(ctx)
	if err != nil {
		return nil, err
	}
	return func(id Identity) bool { return s.gone(id, a.now()) }, nil
}

// readStandingLocked reads the standing from the store, and keeps it. The caller
// holds goneMu.
func (a *Auth) readStandingLocked(ctx context.Context) (*standing, error) {
	s := &standing{at: a.now(), tokens: map[string]tokenState{}, principals: map[sandbox.Principal]bool{}, grants: map[string]bool{}}
	list, err := a.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		// What a token that only reads could not make, it does not keep. A token without
		// scopes is of an earlier version.
		makes := len(t.Scopes) == 0 || slices.ContainsFunc(t.Scopes, func(s string) bool {
			return s == string(ScopeRun) || s == string(ScopeFiles) || s == string(ScopeAdmin)
		})
		s.tokens[t.ID] = tokenState{t.Revoked.IsZero(), t.Rotations, t.PreviousUntil}
		s.principals[t.Principal] = s.principals[t.Principal] || makes && t.InForce(s.at)
	}
	if a.grants != nil {
		list, err := a.grants.Grants(ctx)
		if err != nil {
			return nil, err
		}
		for _, g := range list {
			s.grants[g.ID] = true
		}
	}
	a.forgetExpired()
	a.standing = s
	return s, nil
}

// gone reports whether an identity was revoked, or has expired.
func (s *standing) gone(id Identity, now time.Time) bool {
	if id.expired(now) || id.Grant != "" && !s.grants[id.Grant] {
		return true
	}
	if id.Token != "" {
		return !s.tokens[id.Token].has(id, now)
	}
	return strings.HasPrefix(string(id.Principal), sandbox.TokenPrefix) && !s.principals[id.Principal]
}

// misses reports whether the token, grant or principal of an identity may be newer
// than s.
func (s *standing) misses(id Identity) bool {
	state, known := s.tokens[id.Token]
	token := known && id.Rotation <= state.rotations
	_, principal := s.principals[id.Principal]
	return id.Token != "" && !token || id.Grant != "" && !s.grants[id.Grant] || id.Token == "" && !principal
}

// goneEvery is the maximum age of the data that Gone uses.
const goneEvery = time.Second

// Gone reports whether an identity was revoked, as [Auth.Revoked] does. The
// answer may be up to a second old, but is never older than the last call of
// Revoked: a client whose stream ended with its token must not find its session
// alive. An identity of a token that was just made is not gone.
func (a *Auth) Gone(ctx context.Context, id Identity) (bool, error) {
	a.goneMu.Lock()
	defer a.goneMu.Unlock()
	now, s := a.now(), a.standing
	if s == nil || now.Sub(s.at) >= goneEvery || s.gone(id, now) && s.misses(id) {
		var err error
		if s, err = a.readStandingLocked(ctx); err != nil {
			return false, err
		}
	}
	return s.gone(id, now), nil
}

// Renewed returns an identity with the latest expiry of all tokens verified for
// its principal and scopes, and the latest rotation of its own token. A session must
// last as long: each of its requests has a token of its own, and clients renew their
// tokens.
func (a *Auth) Renewed(id Identity) Identity {
	a.mu.Lock()
	defer a.mu.Unlock()
	if latest := a.expires[id.Key()]; !id.Expires.IsZero() && latest.After(id.Expires) {
		id.Expires = latest
	}
	id.Rotation = max(id.Rotation, a.rotated[id.Token])
	return id
}

// forgetExpired removes the expiries that have passed. They extend no session.
func (a *Auth) forgetExpired() {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.expires, func(_ string, expires time.Time) bool { return Identity{Expires: expires}.expired(now) })
}
