package signin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The grant types of the token endpoint.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
	grantDevice  = "urn:ietf:params:oauth:grant-type:device_code"
)

// token serves the token endpoint.
func (s *Server) token(w http.ResponseWriter, r *http.Request, base string) {
	if !readForm(w, r) {
		return
	}
	if !s.knows(r) && !s.admit(w, r) {
		return
	}
	for _, resource := range r.PostForm["resource"] {
		if !isOurs(resource, base) {
			refuse(w, http.StatusBadRequest, "invalid_target", "resource is not a URL of this server")
			return
		}
	}
	if r.PostForm.Get("client_id") == "" {
		refuse(w, http.StatusBadRequest, "invalid_request", "client_id is missing")
		return
	}
	switch r.PostForm.Get("grant_type") {
	case grantCode:
		s.exchange(w, r)
	case grantRefresh:
		s.refresh(w, r)
	case grantDevice:
		s.pollDevice(w, r)
	default:
		refuse(w, http.StatusBadRequest, "unsupported_grant_type", "grant_type must be "+grantCode+", "+grantRefresh+" or "+grantDevice)
	}
}

// knows reports whether a request has a secret that this server made, and that was
// not used too often. Strangers cannot keep its client from using it.
func (s *Server) knows(r *http.Request) bool {
	form := r.PostForm
	if secret := form.Get("code"); secret != "" && s.codes.has(secret) {
		return true
	}
	if secret := form.Get("device_code"); secret != "" && s.devices.has(secret) {
		key := auth.Hash(secret) // the limiter must not keep the secret
		return s.clients.allow("device " + string(key[:]))
	}
	for _, name := range []string{"refresh_token", "token"} {
		if text := form.Get(name); text != "" {
			for _, refresh := range []bool{true, false} {
				if g, _, err := s.opts.Store.GrantToken(r.Context(), auth.Hash(text), refresh); err == nil {
					return s.clients.allow(g.ID)
				}
			}
		}
	}
	return false
}

// readForm parses the form of a POST request, or answers with an error.
func readForm(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost {
		wrongMethod(w, http.MethodPost)
		return false
	}
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", "the body must be a form of at most 64 KiB")
		return false
	}
	for name, values := range r.PostForm {
		if len(values) > 1 && name != "resource" {
			refuse(w, http.StatusBadRequest, "invalid_request", name+" is there more than once")
			return false
		}
	}
	return true
}

// exchange exchanges an authorization code.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request) {
	form := r.PostForm
	var (
		got    *code
		replay string // grant of a code that is used again
	)
	grant := sandbox.NewGrantID()
	s.codes.use(form.Get("code"), s.opts.Now(), func(c *code) bool {
		if c.grant != "" {
			replay, c.replayed = c.grant, true
			return true
		}
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		challenge := base64.RawURLEncoding.EncodeToString(sum[:])
		// A wrong attempt uses the code up.
		if c.client != form.Get("client_id") || c.redirect != form.Get("redirect_uri") ||
			subtle.ConstantTimeCompare([]byte(challenge), []byte(c.challenge)) != 1 {
			return false
		}
		got, c.grant = c, grant
		return true // remembers the grant, in case that the code was stolen
	})
	if replay != "" {
		s.opts.Log.Warn("a sign-in code was used twice; its grant ends", "grant", replay)
		if err := s.endGrant(r.Context(), replay); err != nil {
			s.fail(w, err)
			return
		}
	}
	if got == nil {
		refuse(w, http.StatusBadRequest, "invalid_grant", "the code is not valid, or it was used, or code_verifier or redirect_uri differ")
		return
	}
	s.grant(w, r, sandbox.Grant{ID: grant, TokenID: got.token, ClientID: got.client, ClientName: got.name, Scopes: got.scopes}, func() (again bool) {
		s.codes.use(form.Get("code"), s.opts.Now(), func(c *code) bool {
			again = c.replayed
			return true
		})
		return again
	})
}

// endTimeout bounds the end of a grant.
const endTimeout = 10 * time.Second

// endGrant ends a grant, also if the client is gone.
func (s *Server) endGrant(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return s.opts.Store.EndGrant(ctx, id)
}

// grant stores a new grant, and answers with its first tokens. If replayed then
// reports that its code was used again meanwhile, grant ends it.
func (s *Server) grant(w http.ResponseWriter, r *http.Request, g sandbox.Grant, replayed func() bool) {
	now := s.opts.Now()
	g.Created, g.Expires = now, now.Add(grantTTL)
	access, refresh, stored := s.newTokens()
	if err := s.opts.Store.PutGrant(r.Context(), g, maxGrants, stored...); err != nil {
		s.fail(w, err)
		return
	}
	if replayed() {
		if err := s.endGrant(r.Context(), g.ID); err != nil {
			s.fail(w, err)
			return
		}
		refuse(w, http.StatusBadRequest, "invalid_grant", "the code was used twice; sign in again")
		return
	}
	give(w, access, refresh, g.Scopes)
}

// newTokens returns the texts of a new access token and a new refresh token, and
// their records.
func (s *Server) newTokens() (access, refresh string, stored []sandbox.GrantToken) {
	access, refresh = auth.NewToken(s.opts.Shard), auth.NewToken(s.opts.Shard)
	now := s.opts.Now()
	return access, refresh, []sandbox.GrantToken{
		{Hash: auth.Hash(access), Expires: now.Add(accessTTL)},
		{Hash: auth.Hash(refresh), Refresh: true, Expires: now.Add(grantTTL)},
	}
}

func give(w http.ResponseWriter, access, refresh string, scopes []string) {
	w.Header().Set("Pragma", "no-cache")
	writeJSON(w, http.StatusOK, map[string]any{
		"access_token":  access,
		"token_type":    "Bearer",
		"expires_in":    int(accessTTL.Seconds()),
		"refresh_token": refresh,
		"scope":         strings.Join(scopes, " "),
	})
}

const badRefresh = "the refresh token is not valid any more; sign in again"

// refresh exchanges a refresh token. A refresh token that was replaced more than
// replayGrace ago is in two hands, so its grant ends (RFC 9700).
func (s *Server) refresh(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	hash := auth.Hash(r.PostForm.Get("refresh_token"))
	g, _, err := s.opts.Store.GrantToken(ctx, hash, true)
	if errors.Is(err, sandbox.NotFound) || err == nil && g.ClientID != r.PostForm.Get("client_id") {
		refuse(w, http.StatusBadRequest, "invalid_grant", badRefresh)
		return
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	access, refresh, stored := s.newTokens()
	now := s.opts.Now()
	renewed, err := s.opts.Store.RenewGrant(ctx, hash, g.ID, now.Add(-replayGrace), now.Add(grantTTL), stored...)
	if err != nil {
		s.fail(w, err)
		return
	}
	if !renewed {
		s.opts.Log.Warn("a replaced refresh token was used again; its grant ends", "grant", g.ID, "principal", g.Principal, "client", g.ClientName)
		if err := s.endGrant(ctx, g.ID); err != nil {
			s.fail(w, err)
			return
		}
		refuse(w, http.StatusBadRequest, "invalid_grant", badRefresh)
		return
	}
	give(w, access, refresh, g.Scopes)
}

// revoke serves the revocation of RFC 7009. It ends the whole grant. An unknown
// token is no error.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request, _ string) {
	if !readForm(w, r) {
		return
	}
	if !s.knows(r) && !s.admit(w, r) {
		return
	}
	hash := auth.Hash(r.PostForm.Get("token"))
	for _, refresh := range []bool{true, false} {
		if err := s.endGrantOf(r.Context(), hash, refresh); err != nil {
			s.fail(w, err)
			return
		}
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) endGrantOf(ctx context.Context, hash [32]byte, refresh bool) error {
	g, _, err := s.opts.Store.GrantToken(ctx, hash, refresh)
	if errors.Is(err, sandbox.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.endGrant(ctx, g.ID)
}
