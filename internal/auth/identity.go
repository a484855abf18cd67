// Package auth says who is asking: it makes and verifies bearer tokens, and
// carries the identity that one proves through a context.
//
// The edges (mcpserver, httpserver, e2bapi, dashboard) import it, and app,
// which makes the one [Auth] of a program. An Auth has no lifecycle of its own:
// it lives as long as the store that it was given. All of it may be used by
// many goroutines at once.
package auth

import (
	"context"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Scope is one thing that a token may be used for.
type Scope string

// The scopes. ScopeAdmin includes the others.
const (
	ScopeRun   Scope = "run"   // make, use and stop sandboxes
	ScopeFiles Scope = "files" // read and write their files
	ScopeAdmin Scope = "admin" // manage the server
)

// Scopes returns every scope.
func Scopes() []Scope { return []Scope{ScopeRun, ScopeFiles, ScopeAdmin} }

// ParseScopes reads scopes by name. The error wraps [sandbox.Invalid].
func ParseScopes(names []string) ([]Scope, error) {
	var scopes []Scope
	for _, n := range names {
		if !slices.Contains(Scopes(), Scope(n)) {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "scope: %q is none", n),
				"the scopes are run, files and admin")
		}
		scopes = append(scopes, Scope(n))
	}
	slices.Sort(scopes)
	return slices.Compact(scopes), nil
}

// An Identity is a principal and what it may do here and now.
type Identity struct {
	Principal sandbox.Principal
	Scopes    []Scope
	// Token is the ID of the token that proved it, if that is one of the store.
	Token string
}

// Local returns the identity of whoever started this program: it may do all.
func Local() Identity {
	return Identity{Principal: sandbox.Local, Scopes: Scopes()}
}

// Can reports whether the identity's scopes include s.
func (i Identity) Can(s Scope) bool {
	return slices.Contains(i.Scopes, s) || slices.Contains(i.Scopes, ScopeAdmin)
}

// Key is the same for two identities exactly if they are the same principal
// with the same rights. A session that one opened may be used by the other.
func (i Identity) Key() string {
	names := make([]string, len(i.Scopes))
	for n, s := range i.Scopes {
		names[n] = string(s)
	}
	slices.Sort(names)
	// A principal may hold any character but NUL, so keys cannot collide.
	return string(i.Principal) + "\x00" + strings.Join(slices.Compact(names), ",")
}

type contextKey struct{}

// NewContext returns ctx with the identity in it.
func NewContext(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, i)
}

// FromContext returns the identity in ctx, and whether there is one.
func FromContext(ctx context.Context) (Identity, bool) {
	i, ok := ctx.Value(contextKey{}).(Identity)
	return i, ok
}
