package app

import (
	"context"
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/adminapi"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/operator"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// administration is the backend of the administration over HTTP.
type administration struct {
	*Accounts
	tokens *Tokens
	sys    *System
}

// serveAdministration adds the administration of accounts to a server.
func (s *System) serveAdministration(o *httpserver.Options) {
	b := administration{&Accounts{store: s.store, audit: s.audit}, &Tokens{store: s.store, auth: s.auth, audit: s.audit}, s}
	o.Admin = adminapi.New(b, s.log).Routes()
	o.Public = map[string]http.Handler{adminapi.DocumentPath: http.HandlerFunc(adminapi.ServeDocument)}
}

// ListTokens returns all tokens.
func (a administration) ListTokens(ctx context.Context) ([]sandbox.Token, error) {
	return a.tokens.List(ctx)
}

// MakeToken makes a token.
func (a administration) MakeToken(ctx context.Context, spec auth.TokenSpec) (string, sandbox.Token, error) {
	return a.tokens.Make(ctx, spec)
}

// RotateToken replaces the text of a token.
func (a administration) RotateToken(ctx context.Context, idOrName string, r auth.Rotation) (string, sandbox.Token, error) {
	return a.tokens.Rotate(ctx, idOrName, r)
}

// RevokeToken revokes a token.
func (a administration) RevokeToken(ctx context.Context, idOrName string) (sandbox.Token, error) {
	r, err := a.tokens.Revoke(ctx, idOrName)
	return r.Token, err
}

// Runs returns runs, newest first.
func (a administration) Runs(ctx context.Context, q adminapi.Query) ([]adminapi.Run, error) {
	list, err := a.sys.History(ctx, operator.HistoryQuery{
		Whose: q.Principal, SandboxID: q.SandboxID, Label: q.Label, Verdict: q.Verdict, Since: q.Started, Until: q.Until, Limit: q.Limit,
	})
	var runs []adminapi.Run
	for _, r := range list {
		runs = append(runs, adminapi.Run{Run: r.Run, Principal: r.Principal, Language: r.Language, Program: r.Program})
	}
	return runs, err
}
