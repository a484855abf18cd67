// Package auth identifies the caller. It makes and verifies bearer tokens, and
// carries the resulting identity in a context.
//
// The edges (mcpserver, httpserver, e2bapi) import it, and app, which
// makes the one [Auth] of a program. An Auth needs no Close: it lives as long as
// the store that it was given. All types are safe for concurrent use.
package auth

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Scope is a permission of a token.
type Scope string

// The scopes. ScopeAdmin includes the others, and ScopeOperate includes ScopeRead.
const (
	ScopeRun     Scope = "run"     // make, use and stop sandboxes
	ScopeFiles   Scope = "files"   // read and write their files
	ScopeRead    Scope = "read"    // read what run and files give access to
	ScopeOperate Scope = "operate" // read what concerns all principals
	ScopeAdmin   Scope = "admin"   // manage the server
)

// Scopes returns every scope.
func Scopes() []Scope { return []Scope{ScopeRun, ScopeFiles, ScopeRead, ScopeOperate, ScopeAdmin} }

// ParseScopes converts names to sorted scopes without duplicates. The error wraps
// [sandbox.Invalid].
func ParseScopes(names []string) ([]Scope, error) {
	var scopes []Scope
	for _, n := range names {
		if !slices.Contains(Scopes(), Scope(n)) {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "scope: %q is not a scope", n),
				"use run, files, read, operate or admin")
		}
		scopes = append(scopes, Scope(n))
	}
	slices.Sort(scopes)
	return slices.Compact(scopes), nil
}

// An Identity is a principal with its permissions.
type Identity struct {
	Principal sandbox.Principal
	Scopes    []Scope
	// Token is the ID of the store's token that proved the identity; otherwise
	// "". An access token of a grant has the ID of the token with which its
	// person signed in.
	Token string
	// Grant is the ID of the grant whose access token proved the identity;
	// otherwise "".
	Grant string
	// Expires is when the token that proved the identity expires. Zero is never.
	// It is not part of Key, so that a session continues with a renewed token.
	Expires time.Time
	// Rotation counts the rotations of the token before the text that proved the
	// identity.
	Rotation int
	// Groups are those that the issuer claims; nil if the operator named no claim.
	Groups []string
}

// expiryGrace is how long the streams and calls of a token go on after it has
// expired. Without it, a call that begins just before a renewal would fail.
const expiryGrace = time.Minute

// expired reports whether what the identity's token opened must end.
func (i Identity) expired(now time.Time) bool {
	return !i.Expires.IsZero() && now.Sub(i.Expires) >= expiryGrace
}

// Local returns the identity of the user who started this program. It has all
// scopes.
func Local() Identity {
	return Identity{Principal: sandbox.Local, Scopes: Scopes()}
}

// Can reports whether the identity's scopes include s.
func (i Identity) Can(s Scope) bool {
	return slices.Contains(i.Scopes, s) || slices.Contains(i.Scopes, ScopeAdmin) ||
		s == ScopeRead && slices.Contains(i.Scopes, ScopeOperate)
}

// Reads reports whether the identity may read what s gives access to.
func (i Identity) Reads(s Scope) bool { return i.Can(s) || i.Can(ScopeRead) }

// May reports whether the identity may do an action that needs s, or only has to read
// what s gives access to.
func (i Identity) May(s Scope, reads bool) bool { return i.Can(s) || reads && i.Can(ScopeRead) }

// Key returns equal strings for two identities exactly if they have the same
// principal and the same scopes. Either may then use a session of the other.
func (i Identity) Key() string {
	names := make([]string, len(i.Scopes))
	for n, s := range i.Scopes {
		names[n] = string(s)
	}
	slices.Sort(names)
	// A principal may contain any character but NUL, so keys cannot collide.
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

type remoteKey struct{}

type remote struct {
	address   string
	forwarded bool
}

// WithRemote returns ctx with the address of the client in it, and whether a proxy
// forwarded the request.
func WithRemote(ctx context.Context, address string, forwarded bool) context.Context {
	return context.WithValue(ctx, remoteKey{}, remote{address, forwarded})
}

// Remote returns the address of the client, or "" on this machine. It has the port of the
// connection if the client itself made that.
func Remote(ctx context.Context) string {
	r, _ := ctx.Value(remoteKey{}).(remote)
	return r.address
}

// Forwarded reports whether a proxy forwarded the request. The client is then not known to
// be on this machine, whatever its address is.
func Forwarded(ctx context.Context) bool {
	r, _ := ctx.Value(remoteKey{}).(remote)
	return r.forwarded
}
