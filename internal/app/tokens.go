package app

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/statedir"
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
	if err := statedir.Make(c.StateDir, store.FileName); err != nil {
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

// firstToken returns the token of the first start, and the file for its text.
func (s *System) firstToken() *auth.FirstToken {
	return &auth.FirstToken{Auth: s.auth, Path: filepath.Join(s.opts.Config.StateDir, "token")}
}

// FirstToken makes a token and returns its text if there is none in force, or if
// replace is true. Otherwise it returns "".
func (s *System) FirstToken(ctx context.Context, replace bool) (string, error) {
	return s.firstToken().Make(ctx, replace)
}

// KeepToken writes the text that [System.FirstToken] returned to a file in the
// state directory that only its owner can read. It returns the path. If the
// write fails, it revokes the token.
func (s *System) KeepToken(ctx context.Context, text string) (string, error) {
	f := s.firstToken()
	if err := f.Keep(ctx, text); err != nil {
		return "", err
	}
	return f.Path, nil
}
