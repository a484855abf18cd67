package app

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Tokens are the bearer tokens of a state directory. Servers on the same
// directory see every change at once.
type Tokens struct {
	store *store.Store
	auth  *auth.Auth
}

// OpenTokens opens the tokens of c's state directory. It needs no driver, so it
// works on machines without sandboxes. The caller closes them.
func OpenTokens(ctx context.Context, c config.Config) (*Tokens, error) {
	if err := makeStateDir(c.StateDir); err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, store.Options{Dir: c.StateDir})
	if err != nil {
		return nil, err
	}
	a, err := auth.New(auth.Options{Tokens: db})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Tokens{store: db, auth: a}, nil
}

// Create makes a token with the named scopes; no scopes means run and files. The
// text of the token cannot be read again later.
func (t *Tokens) Create(ctx context.Context, name string, scopes []string) (string, sandbox.Token, error) {
	parsed, err := auth.ParseScopes(scopes)
	if err != nil {
		return "", sandbox.Token{}, err
	}
	return t.auth.Create(ctx, name, parsed...)
}

// List returns every token, revoked ones too, oldest first.
func (t *Tokens) List(ctx context.Context) ([]sandbox.Token, error) { return t.auth.List(ctx) }

// Revoke revokes a token by its id or name. The error wraps [sandbox.NotFound]
// if no such token is in force.
func (t *Tokens) Revoke(ctx context.Context, idOrName string) error {
	return t.auth.Revoke(ctx, idOrName)
}

// Close closes the store.
func (t *Tokens) Close() error { return t.store.Close() }
