package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audit"
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
	audit *audit.Recorder

	closeAudit func() error
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
	a, err := auth.New(auth.Options{Tokens: db, Shard: c.Server.ShardID()})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	r, closing, err := openAudit(c, nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Tokens{store: db, auth: a, audit: r, closeAudit: closing}, nil
}

// Served reports whether a server runs on c's state directory. It makes no directory.
func Served(ctx context.Context, c config.Config) (served bool, err error) {
	if _, err := os.Stat(filepath.Join(c.StateDir, store.FileName)); err != nil {
		return false, nil
	}
	t, err := OpenTokens(ctx, c)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return t.store.Served(ctx)
}

// administrator returns the principal of an action of administration for its record:
// the local user, or "" for the caller of a server, which the recorder knows.
func administrator(ctx context.Context) sandbox.Principal {
	if _, ok := auth.FromContext(ctx); ok {
		return ""
	}
	return sandbox.Local
}

// A TokenSpec says what token to make.
type TokenSpec = auth.TokenSpec

// Create makes a token with the named scopes; no scopes means run and files. The
// text of the token cannot be read again later.
func (t *Tokens) Create(ctx context.Context, name string, scopes []string) (string, sandbox.Token, error) {
	parsed, err := auth.ParseScopes(scopes)
	if err != nil {
		return "", sandbox.Token{}, err
	}
	return t.Make(ctx, TokenSpec{Name: name, Scopes: parsed})
}

// Make makes a token. The text of the token cannot be read again later.
func (t *Tokens) Make(ctx context.Context, spec TokenSpec) (text string, token sandbox.Token, err error) {
	rec := audit.Record{Action: audit.TokenCreate, Principal: administrator(ctx), Detail: map[string]string{"name": spec.Name}}
	err = t.audit.Do(ctx, rec, func(rec *audit.Record) error {
		text, token, err = t.auth.Make(ctx, spec)
		rec.Detail["id"], rec.Detail["scopes"], rec.Detail["for"] = token.ID, strings.Join(token.Scopes, " "), string(token.Principal)
		return err
	})
	return text, token, err
}

// ScopesOf returns the scopes that names of scopes, or the name of a role, stand for.
// One of both must be empty. The error wraps [sandbox.Invalid].
func ScopesOf(names []string, role string) ([]auth.Scope, error) {
	switch {
	case role == "":
		return auth.ParseScopes(names)
	case len(names) > 0:
		return nil, sandbox.Errorf(sandbox.Invalid, "role: it stands for scopes, so give only one of both")
	}
	return auth.Role(role).Scopes()
}

// RoleOf returns the name of the role that scopes give.
func RoleOf(scopes []string) string { return string(auth.RoleOf(scopes)) }

// UsualGrace is the usual grace of a rotation.
const UsualGrace = auth.UsualGrace

// A Rotation says how to rotate a token.
type Rotation = auth.Rotation

// Rotate replaces the text of a token by its ID or name, and returns the new text. The
// error wraps [sandbox.NotFound] if there is no such token.
func (t *Tokens) Rotate(ctx context.Context, idOrName string, r Rotation) (text string, token sandbox.Token, err error) {
	rec := audit.Record{Action: audit.TokenRotate, Principal: administrator(ctx), Detail: map[string]string{"name": idOrName, "grace": r.Grace.String()}}
	err = t.audit.Do(ctx, rec, func(rec *audit.Record) error {
		text, token, err = t.auth.Rotate(ctx, idOrName, r)
		rec.Detail["id"] = token.ID
		return err
	})
	return text, token, err
}

// revokeToken revokes a token, and records that.
func revokeToken(ctx context.Context, r *audit.Recorder, a *auth.Auth, idOrName string) (token sandbox.Token, err error) {
	rec := audit.Record{Action: audit.TokenRevoke, Principal: administrator(ctx), Detail: map[string]string{"name": idOrName}}
	err = r.Do(ctx, rec, func(rec *audit.Record) error {
		token, err = a.Revoke(ctx, idOrName)
		rec.Detail["id"] = token.ID
		return err
	})
	return token, err
}

// List returns every token, revoked ones too, oldest first.
func (t *Tokens) List(ctx context.Context) ([]sandbox.Token, error) { return t.auth.List(ctx) }

// Grants returns the permissions that people gave OAuth clients, oldest first.
func (t *Tokens) Grants(ctx context.Context) ([]sandbox.Grant, error) { return t.store.Grants(ctx) }

// EndGrant ends a grant. The error wraps [sandbox.NotFound] if there is none.
func (t *Tokens) EndGrant(ctx context.Context, id string) (sandbox.Grant, error) {
	list, err := t.store.Grants(ctx)
	if err != nil {
		return sandbox.Grant{}, err
	}
	for _, g := range list {
		if g.ID == id {
			return g, t.store.EndGrant(ctx, id)
		}
	}
	return sandbox.Grant{}, sandbox.Errorf(sandbox.NotFound, "there is no client with the access %s", id)
}

// A Revoked is a token that was revoked.
type Revoked struct {
	sandbox.Token
	// Before reports whether it had been revoked before.
	Before bool
	// Successor is the ID of the valid token of the same principal, or "".
	Successor string
	// Holdings are the objects of the principal, which live on.
	Holdings
}

// Revoke revokes a token by its ID or name. The error wraps [sandbox.NotFound] if
// there is no such token.
func (t *Tokens) Revoke(ctx context.Context, idOrName string) (Revoked, error) {
	token, err := revokeToken(ctx, t.audit, t.auth, idOrName)
	if err != nil {
		return Revoked{}, err
	}
	r := Revoked{Token: token, Before: !token.Revoked.IsZero()}
	list, err := t.auth.List(ctx)
	if err != nil {
		return r, err
	}
	for _, other := range list {
		if other.Principal == token.Principal && other.InForce(time.Now()) {
			r.Successor = other.ID
		}
	}
	r.Holdings, err = t.Holdings(ctx, token.Principal)
	return r, err
}

// Holdings are the objects of a principal.
type Holdings struct {
	Sandboxes  []string // IDs of the live ones
	Workspaces int
}

// Holdings returns the objects of a principal.
func (t *Tokens) Holdings(ctx context.Context, p sandbox.Principal) (Holdings, error) {
	var h Holdings
	live, err := t.store.LiveSandboxes(ctx)
	if err != nil {
		return h, err
	}
	for _, rec := range live {
		if rec.Principal == p {
			h.Sandboxes = append(h.Sandboxes, rec.ID)
		}
	}
	workspaces, err := t.store.Workspaces(ctx, p)
	h.Workspaces = len(workspaces)
	return h, err
}

// Heritage returns the objects that a new token of a name takes over, and whether
// there was a token of that name before.
func (t *Tokens) Heritage(ctx context.Context, name string) (h Holdings, known bool, err error) {
	p := sandbox.TokenPrincipal(name)
	if h, err = t.Holdings(ctx, p); err != nil {
		return h, false, err
	}
	list, err := t.auth.List(ctx)
	// Old revoked tokens are removed, but their objects may remain.
	known = len(h.Sandboxes) > 0 || h.Workspaces > 0 || slices.ContainsFunc(list, func(t sandbox.Token) bool { return t.Principal == p })
	return h, known, err
}

// StopRevoked stops all sandboxes of principals whose tokens were just revoked,
// and calls stopped for each. It leaves out principals with a valid token. If a
// server runs, a request that it had accepted before may still make a sandbox. So
// StopRevoked then waits until servers have ended such requests, and stops what is
// left.
func (s *System) StopRevoked(ctx context.Context, principals []sandbox.Principal, stopped func(id string)) error {
	stop := func() error {
		gone, err := s.auth.Revoked(ctx)
		if err != nil {
			return err
		}
		var revoked []sandbox.Principal
		for _, p := range principals {
			if gone(auth.Identity{Principal: p}) {
				revoked = append(revoked, p)
			}
		}
		return s.StopSandboxesOf(ctx, revoked, stopped)
	}
	first := stop()
	served, err := s.store.Served(ctx)
	if err != nil || !served {
		return errors.Join(first, err)
	}
	select {
	case <-time.After(auth.RevocationEvery + time.Second):
	case <-ctx.Done():
		return errors.Join(first, ctx.Err())
	}
	return stop() // tries failed stops again
}

// Close closes the store and the audit log.
func (t *Tokens) Close() error { return errors.Join(t.store.Close(), t.closeAudit()) }

// firstToken returns the token of the first start, and the file for its text.
func (s *System) firstToken() *auth.FirstToken {
	return &auth.FirstToken{Auth: s.auth, Path: filepath.Join(s.opts.Config.StateDir, "token")}
}

// FirstToken makes a token and returns its text if there is none in force, or if
// replace is true. Otherwise it returns "".
func (s *System) FirstToken(ctx context.Context, replace bool) (string, error) {
	text, err := s.firstToken().Make(ctx, replace)
	if text != "" || err != nil {
		s.audit.Note(ctx, audit.Record{Action: audit.TokenCreate, Principal: sandbox.Local, Detail: map[string]string{"name": "first token"}}, err)
	}
	return text, err
}

// TokenFile returns the path of the file with the token of the first start, or "" if
// there is no such file.
func (s *System) TokenFile() string {
	path := s.firstToken().Path
	if _, err := os.Lstat(path); err != nil {
		return ""
	}
	return path
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
