package adminapi

import (
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A token is a token with its role, and its text if it was just made.
type token struct {
	sandbox.Token
	Role auth.Role `json:"role"`
	Text string    `json:"token,omitempty"`
}

func (s *Server) tokens(r *http.Request, _ auth.Identity) (int, any, error) {
	list, err := s.backend.ListTokens(r.Context())
	all := make([]token, 0, len(list))
	for _, t := range list {
		all = append(all, token{Token: t, Role: auth.RoleOf(t.Scopes)})
	}
	return http.StatusOK, map[string]any{"tokens": all}, err
}

func (s *Server) makeToken(r *http.Request, _ auth.Identity) (int, any, error) {
	var in struct {
		Name        string    `json:"name"`
		Principal   string    `json:"principal"`
		Role        auth.Role `json:"role"`
		Scopes      []string  `json:"scopes"`
		Description string    `json:"description"`
		Expires     int64     `json:"expires_seconds"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	spec := auth.TokenSpec{Name: in.Name, Principal: in.Principal, Description: in.Description}
	var err error
	if spec.Lifetime, err = seconds("expires_seconds", in.Expires); err != nil {
		return 0, nil, err
	}
	switch {
	case in.Role == "":
		spec.Scopes, err = auth.ParseScopes(in.Scopes)
	case len(in.Scopes) > 0:
		err = sandbox.Errorf(sandbox.Invalid, "role: it stands for scopes, so give only one of both")
	default:
		spec.Scopes, err = in.Role.Scopes()
	}
	if err != nil {
		return 0, nil, err
	}
	text, t, err := s.backend.MakeToken(r.Context(), spec)
	return http.StatusCreated, token{t, auth.RoleOf(t.Scopes), text}, err
}

// maxSeconds bounds a time span, so that it fits a duration.
const maxSeconds = 100 * 366 * 24 * 3600

func seconds(name string, n int64) (time.Duration, error) {
	if n < 0 || n > maxSeconds {
		return 0, sandbox.Errorf(sandbox.Invalid, "%s: %d is not between 0 and %d", name, n, int64(maxSeconds))
	}
	return time.Duration(n) * time.Second, nil
}

func (s *Server) rotateToken(r *http.Request, _ auth.Identity) (int, any, error) {
	var in struct {
		Grace   *int64 `json:"grace_seconds"`
		Expires int64  `json:"expires_seconds"`
	}
	if err := decode(r, &in); err != nil {
		return 0, nil, err
	}
	how := auth.Rotation{Grace: auth.UsualGrace}
	var err error
	if in.Grace != nil {
		if how.Grace, err = seconds("grace_seconds", *in.Grace); err != nil {
			return 0, nil, err
		}
	}
	if how.Lifetime, err = seconds("expires_seconds", in.Expires); err != nil {
		return 0, nil, err
	}
	text, t, err := s.backend.RotateToken(r.Context(), r.PathValue("token"), how)
	return http.StatusOK, token{t, auth.RoleOf(t.Scopes), text}, err
}

func (s *Server) revokeToken(r *http.Request, _ auth.Identity) (int, any, error) {
	_, err := s.backend.RevokeToken(r.Context(), r.PathValue("token"))
	return http.StatusNoContent, nil, err
}
