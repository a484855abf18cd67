package auth

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of new tokens.
const (
	maxDescription = 200 // bytes
	maxLifetime    = 10 * 366 * 24 * time.Hour
	// MaxGrace is how long the text of before a rotation can stay valid.
	MaxGrace = 30 * 24 * time.Hour
	// UsualGrace is how long it does by default.
	UsualGrace = time.Hour
)

// A TokenSpec says what token to make.
type TokenSpec struct {
	Name string
	// Principal is the name of the token whose objects the token gives access to.
	// "" is Name.
	Principal string
	// Scopes are those of the token. None is run and files.
	Scopes      []Scope
	Description string
	// Lifetime is the time until the token expires; zero is forever.
	Lifetime time.Duration
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkTokenName(argument, name string) error {
	if tokenName.MatchString(name) {
		return nil
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: %q is not a token name", argument, name),
		"use up to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit")
}

func checkLifetime(d time.Duration) error {
	if d < 0 || d > maxLifetime {
		return sandbox.Errorf(sandbox.Invalid, "expires: %v is not between 0 and 10 years", d)
	}
	return nil
}

// Create makes a token as [Auth.Make] does.
func (a *Auth) Create(ctx context.Context, name string, scopes ...Scope) (string, sandbox.Token, error) {
	return a.Make(ctx, TokenSpec{Name: name, Scopes: scopes})
}

// Make makes a token and returns its text, which cannot be retrieved later. For a bad
// argument, the error wraps [sandbox.Invalid]. If a token in force has the name, it
// wraps [sandbox.Conflict].
func (a *Auth) Make(ctx context.Context, n TokenSpec) (string, sandbox.Token, error) {
	if a.tokens == nil {
		return "", sandbox.Token{}, sandbox.Errorf(sandbox.Unsupported, "create token: this server does not store tokens")
	}
	var badPrincipal error
	if n.Principal == "" {
		n.Principal = n.Name
	} else {
		badPrincipal = checkTokenName("principal", n.Principal)
	}
	if len(n.Scopes) == 0 {
		n.Scopes = []Scope{ScopeRun, ScopeFiles}
	}
	names := make([]string, len(n.Scopes))
	for i, s := range n.Scopes {
		names[i] = string(s)
	}
	_, err := ParseScopes(names)
	if err = errors.Join(checkTokenName("name", n.Name), badPrincipal, err, checkLifetime(n.Lifetime)); err != nil {
		return "", sandbox.Token{}, err
	}
	if len(n.Description) > maxDescription || !utf8.ValidString(n.Description) || strings.ContainsFunc(n.Description, unicode.IsControl) {
		return "", sandbox.Token{}, sandbox.Errorf(sandbox.Invalid, "description: must be a line of at most %d bytes", maxDescription)
	}
	if err := a.checkFree(ctx, n.Name); err != nil {
		return "", sandbox.Token{}, err
	}
	text := NewToken(a.shard)
	t := sandbox.Token{
		ID:          sandbox.NewTokenID(),
		Name:        n.Name,
		Principal:   sandbox.TokenPrincipal(n.Principal),
		Hash:        Hash(text),
		Scopes:      names,
		Description: n.Description,
		Created:     a.now(),
	}
	if n.Lifetime > 0 {
		t.Expires = t.Created.Add(n.Lifetime)
	}
	err = a.tokens.PutToken(ctx, t)
	if errors.Is(err, sandbox.Conflict) { // another request was faster
		err = cmp.Or(a.checkFree(ctx, n.Name), err)
	}
	if err != nil {
		return "", sandbox.Token{}, sandbox.Wrap(err, "create token", n.Name)
	}
	return text, t, nil
}

// checkFree returns an error wrapping [sandbox.Conflict] if a token in force has the name.
func (a *Auth) checkFree(ctx context.Context, name string) error {
	t, err := a.inForce(ctx, name)
	switch {
	case err == nil:
		return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "name: %q is already the name of the valid token %s", name, t.ID),
			"rotate or revoke that token, or use another name")
	case errors.Is(err, sandbox.NotFound):
		return nil
	}
	return err
}

// A Rotation says how to rotate a token.
type Rotation struct {
	// Grace is how long the text of before stays valid, at most [MaxGrace].
	Grace time.Duration
	// Lifetime is the time until the token expires. Zero keeps the lifetime that the
	// token had when its text was made.
	Lifetime time.Duration
}

// Rotate replaces the text of a token in force, and returns the new text. The token
// keeps its ID, so its sessions and the access of OAuth clients go on. idOrName is as
// for [Auth.Revoke]. The error wraps [sandbox.NotFound] if there is no such token, or
// [sandbox.Conflict] if it was revoked or has expired.
func (a *Auth) Rotate(ctx context.Context, idOrName string, r Rotation) (string, sandbox.Token, error) {
	t, err := a.find(ctx, idOrName)
	if err != nil {
		return "", t, err
	}
	if r.Grace < 0 || r.Grace > MaxGrace {
		return "", t, sandbox.Errorf(sandbox.Invalid, "grace: %v is not between 0 and %v", r.Grace, MaxGrace)
	}
	if err := checkLifetime(r.Lifetime); err != nil {
		return "", t, err
	}
	now := a.now()
	if !t.InForce(now) {
		return "", t, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "the token %s was revoked or has expired", idOrName), "make a new one with glovebox token create")
	}
	made := t.Created
	if !t.Rotated.IsZero() {
		made = t.Rotated
	}
	if r.Lifetime == 0 && !t.Expires.IsZero() {
		r.Lifetime = t.Expires.Sub(made)
	}
	old, text := t.Hash, NewToken(a.shard)
	t.Hash, t.Rotated, t.PreviousUntil = Hash(text), now, now.Add(r.Grace)
	if !t.Expires.IsZero() && t.Expires.Before(t.PreviousUntil) {
		t.PreviousUntil = t.Expires // a rotation does not extend the life of a text
	}
	t.Rotations++
	if r.Lifetime > 0 {
		t.Expires = now.Add(r.Lifetime)
	}
	if err := a.tokens.RotateToken(ctx, t.ID, old, t.Hash, t.PreviousUntil, t.Expires); err != nil {
		return "", t, sandbox.Wrap(err, "rotate token", idOrName)
	}
	return text, t, nil
}

// inForce returns the token in force with that name, or an error wrapping
// [sandbox.NotFound].
func (a *Auth) inForce(ctx context.Context, name string) (sandbox.Token, error) {
	list, err := a.named(ctx, name)
	if err != nil {
		return sandbox.Token{}, err
	}
	for _, t := range list {
		if t.Name == name && t.InForce(a.now()) {
			return t, nil
		}
	}
	return sandbox.Token{}, sandbox.Errorf(sandbox.NotFound, "there is no valid token named %q", name)
}

// named returns the tokens with that ID or name, oldest first.
func (a *Auth) named(ctx context.Context, idOrName string) ([]sandbox.Token, error) {
	if a.tokens == nil {
		return nil, nil
	}
	list, err := a.tokens.TokensNamed(ctx, idOrName)
	return list, sandbox.Wrap(err, "find token", "")
}
