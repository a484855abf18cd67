package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TokenPrefix begins every token that Glovebox makes, so that scanners for
// leaked secrets can know one.
const TokenPrefix = "gbx_"

// NewToken returns a fresh token: the prefix and 256 random bits.
func NewToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	return TokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// Hash returns what is kept of a token. A token that NewToken made cannot be
// guessed from it, so no slow hash is needed.
func Hash(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// A TokenStore keeps tokens.
type TokenStore interface {
	PutToken(ctx context.Context, t sandbox.Token) error
	// FindToken returns the token with that hash. It returns an error
	// wrapping [sandbox.NotFound] if there is none or it was revoked.
	FindToken(ctx context.Context, hash [sha256.Size]byte) (sandbox.Token, error)
	// ListTokens returns all tokens, revoked ones too, oldest first.
	ListTokens(ctx context.Context) ([]sandbox.Token, error)
	// TouchToken records that a token was used now.
	TouchToken(ctx context.Context, id string) error
	// RevokeToken ends a token. It returns an error wrapping
	// [sandbox.NotFound] if there is none.
	RevokeToken(ctx context.Context, id string) error
}

// Options are what New needs.
type Options struct {
	// Tokens keeps the tokens. It may be nil: then only Static is accepted.
	Tokens TokenStore
	// Static, if not empty, is a token with every scope that is not in the
	// store: the one from the environment. It has a principal of its own.
	Static string
	// Issuer, if it is not nil, makes tokens that are accepted too.
	Issuer *Issuer
	// Now is the clock, [time.Now] if nil.
	Now func() time.Time
}

// Principals of tokens are their names behind a prefix: replacing a token by
// one of the same name keeps what belongs to it.
const (
	tokenPrincipal  = "token:"
	StaticPrincipal = "environment"
)

// MinStaticLength is the least length of a token from the environment.
const MinStaticLength = 16

// touchEvery is how exact the last use of a token is.
const touchEvery = time.Minute

// Auth makes and verifies tokens.
type Auth struct {
	tokens     TokenStore
	static     bool
	staticHash [sha256.Size]byte
	issuer     *issuer // or nil
	now        func() time.Time

	mu      sync.Mutex
	touched map[string]time.Time // token id -> last use written to the store

	goneMu sync.Mutex
	gone   func(Identity) bool // what Revoked returned at goneAt; nil before
	goneAt time.Time
}

// New returns an Auth. It returns an error wrapping [sandbox.Invalid] if the
// static token is too short to be a secret.
func New(o Options) (*Auth, error) {
	a := &Auth{tokens: o.Tokens, now: o.Now, touched: map[string]time.Time{}}
	if a.now == nil {
		a.now = time.Now
	}
	if o.Issuer != nil {
		a.issuer = newIssuer(*o.Issuer, a.now)
	}
	if o.Static != "" {
		if len(o.Static) < MinStaticLength || strings.ContainsAny(o.Static, " \t\r\n") {
			return nil, sandbox.WithHint(
				sandbox.Errorf(sandbox.Invalid, "token: the one from the environment must have at least %d characters and no space", MinStaticLength),
				"make one with: openssl rand -hex 32")
		}
		a.static, a.staticHash = true, Hash(o.Static)
	}
	return a, nil
}

// Verify returns the identity that a token proves. It returns an error wrapping
// [sandbox.Unauthenticated] for a token that proves none, whatever the reason,
// and [sandbox.Unavailable] for one of an issuer that is needed and does not
// answer. An identity of an issuer may have no scope at all.
//
// The time it takes says nothing about how near a wrong token is to a right
// one: only hashes are compared, the static one in constant time.
func (a *Auth) Verify(ctx context.Context, token string) (Identity, error) {
	hash := Hash(token)
	if a.static && subtle.ConstantTimeCompare(hash[:], a.staticHash[:]) == 1 {
		return Identity{Principal: StaticPrincipal, Scopes: Scopes()}, nil
	}
	if a.issuer != nil && looksSigned(token) {
		return a.issuer.verify(ctx, token)
	}
	refused := sandbox.Errorf(sandbox.Unauthenticated, "token: not valid")
	if a.tokens == nil {
		return Identity{}, refused
	}
	t, err := a.tokens.FindToken(ctx, hash)
	if errors.Is(err, sandbox.NotFound) {
		return Identity{}, refused
	}
	if err != nil {
		return Identity{}, sandbox.Wrap(err, "verify token", "")
	}
	scopes, err := ParseScopes(t.Scopes)
	if err != nil {
		return Identity{}, sandbox.Wrap(err, "verify token", t.ID)
	}
	if err := a.touch(ctx, t.ID); err != nil {
		return Identity{}, sandbox.Wrap(err, "verify token", t.ID)
	}
	return Identity{Principal: t.Principal, Scopes: scopes, Token: t.ID}, nil
}

// touch writes the use of a token down, at most once in touchEvery.
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

// Create makes a token and returns its text, which is not to be had again. It
// returns an error wrapping [sandbox.Invalid] for a bad name or scope, and
// [sandbox.Conflict] if a token of that name is in force. No scopes are run
// and files.
func (a *Auth) Create(ctx context.Context, name string, scopes ...Scope) (string, sandbox.Token, error) {
	if a.tokens == nil {
		return "", sandbox.Token{}, sandbox.Errorf(sandbox.Unsupported, "create token: this server keeps none")
	}
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(name) {
		return "", sandbox.Token{}, sandbox.Errorf(sandbox.Invalid,
			"name: %q is not a token's name: up to 64 letters, digits, dots, dashes and underscores", name)
	}
	if len(scopes) == 0 {
		scopes = []Scope{ScopeRun, ScopeFiles}
	}
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	if _, err := ParseScopes(names); err != nil {
		return "", sandbox.Token{}, err
	}
	if t, err := a.inForce(ctx, name); err == nil {
		return "", sandbox.Token{}, sandbox.WithHint(
			sandbox.Errorf(sandbox.Conflict, "name: %q is the name of a token in force, %s", name, t.ID),
			"revoke that one first, or take another name")
	} else if !errors.Is(err, sandbox.NotFound) {
		return "", sandbox.Token{}, err
	}
	text := NewToken()
	t := sandbox.Token{
		ID:        sandbox.NewTokenID(),
		Name:      name,
		Principal: sandbox.Principal(tokenPrincipal + name),
		Hash:      Hash(text),
		Scopes:    names,
		Created:   a.now(),
	}
	if err := a.tokens.PutToken(ctx, t); err != nil {
		return "", sandbox.Token{}, sandbox.Wrap(err, "create token", name)
	}
	return text, t, nil
}

// List returns all tokens, oldest first.
func (a *Auth) List(ctx context.Context) ([]sandbox.Token, error) {
	if a.tokens == nil {
		return nil, nil
	}
	ts, err := a.tokens.ListTokens(ctx)
	return ts, sandbox.Wrap(err, "list tokens", "")
}

// Revoke ends a token at once. It is named by its id or, if it is in force, by
// its name. Revoke returns an error wrapping [sandbox.NotFound] if there is
// none.
func (a *Auth) Revoke(ctx context.Context, idOrName string) error {
	id := idOrName
	if t, err := a.inForce(ctx, idOrName); err == nil {
		id = t.ID
	} else if !errors.Is(err, sandbox.NotFound) {
		return err
	}
	if a.tokens == nil {
		return sandbox.Errorf(sandbox.NotFound, "no token %s", idOrName)
	}
	return sandbox.Wrap(a.tokens.RevokeToken(ctx, id), "revoke token", idOrName)
}

// inForce returns the token of that name that is not revoked, or an error
// wrapping [sandbox.NotFound].
func (a *Auth) inForce(ctx context.Context, name string) (sandbox.Token, error) {
	list, err := a.List(ctx)
	if err != nil {
		return sandbox.Token{}, err
	}
	for _, t := range list {
		if t.Name == name && t.Revoked.IsZero() {
			return t, nil
		}
	}
	return sandbox.Token{}, sandbox.Errorf(sandbox.NotFound, "no token in force is named %q", name)
}
