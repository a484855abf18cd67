// Package adminapi serves the administration of accounts over HTTP: tokens, groups,
// limits and the history of runs. The command line has the same operations.
//
// Only package app imports it. [New] makes a [Server], whose routes httpserver serves
// behind its guard. Each route checks the scope of the caller's token. The file
// openapi.json describes these routes and the other ones of httpserver that are our own;
// a test compares it with the routes.
package adminapi

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/problem"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Document is the OpenAPI document of our HTTP API.
//
//go:embed openapi.json
var Document []byte

// A Backend has the accounts of a state directory. The methods with changes record them
// for the identity in the context.
type Backend interface {
	ListTokens(ctx context.Context) ([]sandbox.Token, error)
	MakeToken(ctx context.Context, spec auth.TokenSpec) (string, sandbox.Token, error)
	RotateToken(ctx context.Context, idOrName string, r auth.Rotation) (string, sandbox.Token, error)
	RevokeToken(ctx context.Context, idOrName string) (sandbox.Token, error)

	Groups(ctx context.Context) ([]usage.Group, error)
	AddMembers(ctx context.Context, group string, members []sandbox.Principal) error
	RemoveMembers(ctx context.Context, group string, members []sandbox.Principal) error
	Limits(ctx context.Context) ([]usage.AccountLimit, error)
	SetLimits(ctx context.Context, list []usage.AccountLimit) error
	RemoveLimits(ctx context.Context, of usage.AccountLimit, limits []usage.Limit) error

	Runs(ctx context.Context, q Query) ([]Run, error)
}

// A Query selects runs. A zero field selects all.
type Query struct {
	Principal      sandbox.Principal
	SandboxID      string
	Label          string
	Verdict        sandbox.VerdictCode
	Started, Until time.Time // the time of the start
	Limit          int
}

// A Run is a run with its principal.
type Run struct {
	sandbox.Run
	Principal sandbox.Principal `json:"principal"`
	Language  string            `json:"language,omitempty"`
	// Program has at most 1,000 characters. It is only for the principal itself.
	Program string `json:"program,omitempty"`
}

// A Server serves the API.
type Server struct {
	backend Backend
	log     *slog.Logger
	now     func() time.Time
}

// New returns a Server.
func New(b Backend, log *slog.Logger) *Server { return &Server{b, log, time.Now} }

// DocumentPath is the path of the OpenAPI document, which needs no token.
const DocumentPath = "GET /api/openapi.json"

// ServeDocument answers with the OpenAPI document.
func ServeDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Write(Document)
}

// Routes returns the handlers by their patterns. They need the caller's identity in the
// context of requests.
func (s *Server) Routes() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /api/tokens":                    s.answer(auth.ScopeOperate, s.tokens),
		"POST /api/tokens":                   s.answer(auth.ScopeAdmin, s.makeToken),
		"POST /api/tokens/{token}/rotate":    s.answer(auth.ScopeAdmin, s.rotateToken),
		"DELETE /api/tokens/{token}":         s.answer(auth.ScopeAdmin, s.revokeToken),
		"GET /api/groups":                    s.answer(auth.ScopeOperate, s.groups),
		"POST /api/groups/{group}/members":   s.answer(auth.ScopeAdmin, s.addMembers),
		"DELETE /api/groups/{group}/members": s.answer(auth.ScopeAdmin, s.removeMembers),
		"DELETE /api/groups/{group}":         s.answer(auth.ScopeAdmin, s.removeGroup),
		"GET /api/limits":                    s.answer(auth.ScopeOperate, s.limits),
		"PUT /api/limits":                    s.answer(auth.ScopeAdmin, s.setLimits),
		"DELETE /api/limits":                 s.answer(auth.ScopeAdmin, s.removeLimits),
		"GET /api/runs":                      s.answer("", s.runs),
	}
}

// maxBody bounds the body of a request.
const maxBody = 64 << 10

// arguments are the names that errors may begin with.
var arguments = []string{
	"name", "principal", "principals", "role", "scopes", "scope", "description", "expires", "expires_seconds", "grace", "grace_seconds",
	"group", "limits", "limit", "since", "until", "verdict", "label", "sandbox_id",
}

// answer wraps a handler. Its value becomes the body of the answer; nil is none. The
// caller needs the scope; "" is any.
func (s *Server) answer(scope auth.Scope, f func(r *http.Request, id auth.Identity) (int, any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := auth.FromContext(r.Context())
		var status int
		var v any
		err := error(nil)
		if scope != "" && !id.Can(scope) {
			err = sandbox.WithHint(sandbox.Errorf(sandbox.Forbidden, "the token lacks the scope %s", scope),
				"create a token with it: glovebox token create NAME --scope %s", scope)
		} else {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			status, v, err = f(r, id)
		}
		w.Header().Set("Cache-Control", "no-store")
		if err != nil {
			kind := sandbox.KindOf(err)
			if kind == sandbox.Internal {
				s.log.Error("administration", "path", r.URL.Path, "error", err)
			}
			problem.Write(w, kind.HTTPStatus(), problem.Of(err, arguments))
			return
		}
		if v == nil {
			w.WriteHeader(status)
			return
		}
		b, err := json.Marshal(v)
		if err != nil {
			s.log.Error("administration", "path", r.URL.Path, "error", err)
			problem.Write(w, http.StatusInternalServerError, problem.Of(err, nil))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(status)
		w.Write(append(b, '\n'))
	})
}

// decode reads a JSON object from the body of a request.
func decode(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("there is more than one value")
	}
	if err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "body: %w", err), "see GET /api/openapi.json")
	}
	return nil
}
