package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TokenPrefix is the prefix of all tokens that Glovebox makes. Scanners for
// leaked secrets can recognise it.
const TokenPrefix = "gbx_"

// NewToken returns the text of a new token: the prefix, the mark of the server's
// shard, and 256 random bits.
func NewToken(shard sandbox.Shard) string {
	b := make([]byte, 32)
	rand.Read(b)
	return TokenPrefix + shard.Mark(base64.RawURLEncoding.EncodeToString(b))
}

// Hash returns the hash of a token, which is stored in place of the token. It
// needs no slow hash function: tokens of NewToken have 256 random bits and cannot
// be guessed.
func Hash(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// A TokenStore stores tokens. Its methods must be safe for concurrent use.
type TokenStore interface {
	PutToken(ctx context.Context, t sandbox.Token) error
	// FindToken returns the token with that hash, also if it has expired. The hash
	// may be the one of before its last rotation, as long as that is valid. If there
	// is none or it was revoked, the error wraps [sandbox.NotFound].
	FindToken(ctx context.Context, hash [sha256.Size]byte) (sandbox.Token, error)
	// ListTokens returns all tokens, including revoked ones, oldest first.
	ListTokens(ctx context.Context) ([]sandbox.Token, error)
	// TokensNamed returns the tokens with that ID or name, including revoked ones,
	// oldest first.
	TokensNamed(ctx context.Context, idOrName string) ([]sandbox.Token, error)
	// TouchToken records the current time as the token's last use.
	TouchToken(ctx context.Context, id string) error
	// RevokeToken revokes a token. If there is none, the error wraps
	// [sandbox.NotFound].
	RevokeToken(ctx context.Context, id string) error
	// RotateToken replaces the hash old of a token; old is valid until until. If old
	// is not its hash, or the token was revoked, the error wraps [sandbox.Conflict].
	RotateToken(ctx context.Context, id string, old, hash [sha256.Size]byte, until, expires time.Time) error
}

// A GrantStore finds the access tokens that the built-in sign-in makes. Its methods
// must be safe for concurrent use.
type GrantStore interface {
	// GrantToken returns the token with that hash, and its grant. If there is
	// none or it is not valid any more, the error wraps [sandbox.NotFound].
	GrantToken(ctx context.Context, hash [sha256.Size]byte, refresh bool) (sandbox.Grant, sandbox.GrantToken, error)
	// Grants returns the grants in force.
	Grants(ctx context.Context) ([]sandbox.Grant, error)
}

// Options are the arguments of [New].
type Options struct {
	// Tokens stores the tokens. If it is nil, only Static and tokens of Issuer
	// are accepted.
	Tokens TokenStore
	// Shard is in the texts of new tokens; the zero value is none.
	Shard sandbox.Shard
	// Static, if not empty, is the token from the environment. It has all scopes
	// and its own principal, and is not in the store.
	Static string
	// Grants, if not nil, has access tokens that are accepted, too. It needs
	// Tokens.
	Grants GrantStore
	// Issuer, if not nil, is an issuer whose tokens are accepted, too.
	Issuer *Issuer
	// Verified, if not nil, is called with the result of each Verify. It must return
	// quickly.
	Verified func(ctx context.Context, id Identity, err error)
	// Claimed, if not nil, records the groups that the issuer claims for a principal. It
	// is called for the first token of a principal, and when the groups change or a
	// minute has passed. Its error refuses the token.
	Claimed func(ctx context.Context, p sandbox.Principal, groups []string) error
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// StaticPrincipal is the principal of the token from the environment.
const StaticPrincipal = "environment"

// MinStaticLength is the minimum length of the token from the environment, in
// bytes.
const MinStaticLength = 16

// touchEvery is the precision of a token's last use.
const touchEvery = time.Minute

// Auth makes and verifies tokens. It is safe for concurrent use.
type Auth struct {
	tokens      TokenStore
	shard       sandbox.Shard // of new tokens
	grants      GrantStore    // or nil
	static      bool
	staticHash  [sha256.Size]byte
	issuer      *issuer // or nil
	verified    func(context.Context, Identity, error)
	recordClaim func(context.Context, sandbox.Principal, []string) error
	now         func() time.Time

	mu      sync.Mutex
	touched map[string]time.Time // token id -> last use written to the store
	expires map[string]time.Time // Identity.Key -> latest expiry of tokens that expire
	rotated map[string]int       // token id -> latest rotation whose text was verified

	claims map[sandbox.Principal]claim

	goneMu   sync.Mutex
	standing *standing // as last read; nil before that
}

// New returns an Auth. If the static token is too short or contains white space,
// the error wraps [sandbox.Invalid].
func New(o Options) (*Auth, error) {
	a := &Auth{tokens: o.Tokens, shard: o.Shard, grants: o.Grants, verified: o.Verified, recordClaim: o.Claimed, now: o.Now, claims: map[sandbox.Principal]claim{}, touched: map[string]time.Time{}, expires: map[string]time.Time{}, rotated: map[string]int{}}
	if a.now == nil {
		a.now = time.Now
	}
	if a.verified == nil {
		a.verified = func(context.Context, Identity, error) {}
	}
	if o.Issuer != nil {
		a.issuer = newIssuer(*o.Issuer, a.now)
	}
	if o.Static != "" {
		if len(o.Static) < MinStaticLength || strings.ContainsAny(o.Static, " \t\r\n") {
			return nil, sandbox.WithHint(
				sandbox.Errorf(sandbox.Invalid, "token: the token from the environment must have at least %d characters and no spaces", MinStaticLength),
				"make one with: openssl rand -hex 32")
		}
		a.static, a.staticHash = true, Hash(o.Static)
	}
	return a, nil
}

// Verify returns the identity that a token proves. For an invalid token, the
// error wraps [sandbox.Unauthenticated]. If the token's issuer is needed and does
// not answer, it wraps [sandbox.Unavailable]. An identity of an issuer may have
// no scopes.
//
// Verify is safe against timing attacks. It compares only hashes, and the hash of
// the static token in constant time.
func (a *Auth) Verify(ctx context.Context, token string) (Identity, error) {
	id, err := a.verify(ctx, token)
	a.verified(ctx, id, err)
	return id, err
}

func (a *Auth) verify(ctx context.Context, token string) (Identity, error) {
	hash := Hash(token)
	if a.static && subtle.ConstantTimeCompare(hash[:], a.staticHash[:]) == 1 {
		return Identity{Principal: StaticPrincipal, Scopes: Scopes()}, nil
	}
	if a.issuer != nil && looksSigned(token) {
		id, err := a.issuer.verify(ctx, token)
		if err == nil {
			err = a.claim(ctx, id)
		}
		if err != nil {
			return Identity{}, err
		}
		a.noteExpiry(id)
		return id, nil
	}
	refused := sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "token: not valid"),
		"send the complete token, or make a new one with glovebox token create NAME on the server's machine")
	if a.tokens == nil {
		return Identity{}, refused
	}
	t, err := a.tokens.FindToken(ctx, hash)
	if errors.Is(err, sandbox.NotFound) && a.grants != nil {
		id, err := a.verifyGrant(ctx, hash)
		if errors.Is(err, sandbox.NotFound) {
			err = refused
		}
		return id, err
	}
	if errors.Is(err, sandbox.NotFound) {
		return Identity{}, refused
	}
	if err != nil {
		return Identity{}, sandbox.Wrap(err, "verify token", "")
	}
	if !t.InForce(a.now()) {
		return Identity{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "token: it expired at %s", t.Expires.UTC().Format(time.RFC3339)),
			"make a new one with glovebox token create %s on the server's machine", t.Name)
	}
	scopes, err := ParseScopes(t.Scopes)
	if err != nil {
		return Identity{}, sandbox.Wrap(err, "verify token", t.ID)
	}
	if err := a.touch(ctx, t.ID); err != nil {
		return Identity{}, sandbox.Wrap(err, "verify token", t.ID)
	}
	id := Identity{Principal: t.Principal, Scopes: scopes, Token: t.ID, Expires: t.Expires, Rotation: t.Rotations}
	if hash != t.Hash {
		id.Rotation-- // the text of before the last rotation
	}
	a.noteExpiry(id)
	return id, nil
}

// verifyGrant returns the identity that an access token of a grant proves. The
// error wraps [sandbox.NotFound] if there is no such access token.
func (a *Auth) verifyGrant(ctx context.Context, hash [sha256.Size]byte) (Identity, error) {
	g, t, err := a.grants.GrantToken(ctx, hash, false)
	if err != nil {
		return Identity{}, sandbox.Wrap(err, "verify token", "")
	}
	scopes, err := ParseScopes(g.Scopes)
	if err != nil {
		return Identity{}, sandbox.Wrap(err, "verify token", g.ID)
	}
	if err := a.touch(ctx, g.TokenID); err != nil {
		return Identity{}, sandbox.Wrap(err, "verify token", g.TokenID)
	}
	id := Identity{Principal: g.Principal, Scopes: scopes, Token: g.TokenID, Grant: g.ID, Expires: t.Expires}
	a.noteExpiry(id)
	return id, nil
}

// noteExpiry records the expiry and the rotation of a token.
func (a *Auth) noteExpiry(id Identity) {
	if id.Expires.IsZero() && id.Rotation == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if id.Token != "" && id.Rotation > a.rotated[id.Token] {
		a.rotated[id.Token] = id.Rotation
	}
	if key := id.Key(); id.Expires.After(a.expires[key]) {
		a.expires[key] = id.Expires
	}
}

// touch records the use of a token, at most once in touchEvery.
func (a *Auth) touch(ctx context.Context, id string) error {
	now := a.now()
	a.mu.Lock()
	due := now.Sub(a.touched[id]) >= touchEvery
	if due {
		a.touched[id] = now
	}
	a.mu.Unlock()
	if !due {
		return nil
	}
	return a.tokens.TouchToken(ctx, id)
}

// List returns all tokens, oldest first.
func (a *Auth) List(ctx context.Context) ([]sandbox.Token, error) {
	if a.tokens == nil {
		return nil, nil
	}
	ts, err := a.tokens.ListTokens(ctx)
	return ts, sandbox.Wrap(err, "list tokens", "")
}

// Revoke revokes a token at once, and returns it as it was before. idOrName is
// the token's ID or its name: of the active token or, if none is active, of the
// one created last. If there is no such token, the error wraps
// [sandbox.NotFound].
func (a *Auth) Revoke(ctx context.Context, idOrName string) (sandbox.Token, error) {
	t, err := a.find(ctx, idOrName)
	if err != nil {
		return t, err
	}
	return t, sandbox.Wrap(a.tokens.RevokeToken(ctx, t.ID), "revoke token", idOrName)
}

// find returns the token that Revoke describes.
func (a *Auth) find(ctx context.Context, idOrName string) (sandbox.Token, error) {
	list, err := a.named(ctx, idOrName)
	if err != nil {
		return sandbox.Token{}, err
	}
	found := -1
	for i, t := range list {
		found = i
		if t.ID == idOrName || t.InForce(a.now()) {
			break
		}
	}
	if found < 0 {
		return sandbox.Token{}, sandbox.Errorf(sandbox.NotFound, "no token %s", idOrName)
	}
	return list[found], nil
}
