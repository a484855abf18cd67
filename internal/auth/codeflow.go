package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/time/rate"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Client is this server as a client of an [Issuer]: people sign in at the issuer, by
// the authorization code flow of OpenID Connect with PKCE.
type Client struct {
	ID, Secret string
	// Redirect is the URL to which the issuer sends people back. The issuer knows it.
	Redirect string
	// Scopes are asked for beside openid, by the issuer's names.
	Scopes []string
	// Parameters are added to the address at which people sign in. Some issuers need
	// one to issue access tokens for an audience.
	Parameters map[string]string
}

const (
	// These limit the rate of exchanges of codes, which strangers can cause.
	exchangeEvery = 200 * time.Millisecond
	exchangeBurst = 50
	maxCode       = 4 << 10
)

// A SignIn is a sign-in at the issuer that a browser began. State and the secrets are of
// one use.
type SignIn struct {
	// URL is where the browser goes. State comes back from there.
	URL, State string

	nonce, verifier string
}

// Answered reports whether state is the sign-in's own. It compares in constant time.
func (s SignIn) Answered(state string) bool {
	return subtle.ConstantTimeCompare([]byte(state), []byte(s.State)) == 1
}

// codeFlow is what discovery found for sign-ins.
type codeFlow struct {
	config   oauth2.Config
	verifier *oidc.IDTokenVerifier // of ID tokens
	web      *http.Client          // for exchanges
}

// newCodeFlow returns the flow for a client of the issuer that p describes. The
// endpoints are encrypted, or on this machine as the issuer itself.
func newCodeFlow(o Issuer, p *oidc.Provider, keys oidc.KeySet, now func() time.Time) (*codeFlow, error) {
	var about struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := p.Claims(&about); err != nil {
		return nil, err
	}
	end := p.Endpoint()
	for _, text := range []string{end.AuthURL, end.TokenURL} {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && strings.HasPrefix(o.URL, "http://") && sandbox.IsLoopback(u.Hostname())) {
			return nil, sandbox.Errorf(sandbox.Unavailable, "its endpoint %q is not encrypted", text)
		}
	}
	// The default of OpenID Connect is client_secret_basic. The library would try both
	// with one code, and the first refusal uses the code up.
	end.AuthStyle = oauth2.AuthStyleInHeader
	if len(about.Methods) > 0 && !slices.Contains(about.Methods, "client_secret_basic") {
		end.AuthStyle = oauth2.AuthStyleInParams
	}
	return &codeFlow{
		config: oauth2.Config{
			ClientID: o.Client.ID, ClientSecret: o.Client.Secret, RedirectURL: o.Client.Redirect, Endpoint: end,
			Scopes: append([]string{oidc.ScopeOpenID}, o.Client.Scopes...),
		},
		verifier: oidc.NewVerifier(o.URL, keys, &oidc.Config{ClientID: o.Client.ID, SupportedSigningAlgs: signatures, Now: now}),
		web: &http.Client{
			Transport: &issuerWeb{limit: rate.NewLimiter(rate.Every(exchangeEvery), exchangeBurst)}, Timeout: fetchTimeout,
			// A redirect would carry the code and the secret elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// BeginSignIn begins the sign-in of a person at the issuer. The error wraps
// [sandbox.Unavailable] if the issuer does not answer. It needs an issuer with a client.
func (a *Auth) BeginSignIn(ctx context.Context) (SignIn, error) {
	flow, err := a.codeFlow(ctx)
	if err != nil {
		return SignIn{}, err
	}
	s := SignIn{State: randomText(), nonce: randomText(), verifier: oauth2.GenerateVerifier()}
	var opts []oauth2.AuthCodeOption
	for name, value := range a.issuer.opts.Client.Parameters {
		opts = append(opts, oauth2.SetAuthURLParam(name, value))
	}
	// The flow's own come last: a configured parameter replaces none of them.
	s.URL = flow.config.AuthCodeURL(s.State, append(opts, oidc.Nonce(s.nonce), oauth2.S256ChallengeOption(s.verifier))...)
	return s, nil
}

func randomText() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (a *Auth) codeFlow(ctx context.Context) (*codeFlow, error) {
	if a.issuer == nil || a.issuer.opts.Client == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "people do not sign in at an issuer here")
	}
	d, err := a.issuer.discover(ctx, true)
	if err != nil {
		return nil, err
	}
	return d.flow, d.flowErr
}

// FinishSignIn exchanges the code of a sign-in, and returns the identity of the person.
// The ID token proves who the person is. The access token that comes with it is verified
// as a bearer token, and its claims give the identity what they give to clients. The
// identity ends with the ID token. The error wraps [sandbox.Unauthenticated] if the
// issuer refuses the code, or a token proves nothing, and [sandbox.Unavailable] if the
// issuer does not answer.
func (a *Auth) FinishSignIn(ctx context.Context, s SignIn, code string) (Identity, error) {
	id, err := a.finishSignIn(ctx, s, code)
	a.verified(ctx, id, err)
	return id, err
}

func (a *Auth) finishSignIn(ctx context.Context, s SignIn, code string) (Identity, error) {
	flow, err := a.codeFlow(ctx)
	if err != nil {
		return Identity{}, err
	}
	if code == "" || len(code) > maxCode {
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "the issuer sent no code")
	}
	answer, err := flow.config.Exchange(oidc.ClientContext(ctx, flow.web), code, oauth2.VerifierOption(s.verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response.StatusCode < 500:
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "the issuer refused the code: %s", refusal(refused))
	case err != nil:
		return Identity{}, a.issuer.unavailable(err)
	}
	text, ok := answer.Extra("id_token").(string)
	if !ok {
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "the issuer sent no ID token")
	}
	person, err := a.issuer.verifySigned(ctx, flow.verifier, text, a.issuer.opts.Client.ID)
	if err != nil {
		return Identity{}, sandbox.Errorf(sandbox.KindOf(err), "ID token: %w", err)
	}
	var claims struct {
		Party string `json:"azp"`
	}
	if err := person.Claims(&claims); err != nil {
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "ID token: %w", err)
	}
	switch {
	case s.nonce == "" || subtle.ConstantTimeCompare([]byte(person.Nonce), []byte(s.nonce)) != 1:
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "ID token: it is not of this sign-in: its nonce differs")
	case claims.Party != "" && claims.Party != a.issuer.opts.Client.ID, len(person.Audience) > 1 && claims.Party == "":
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "ID token: it was issued to another client")
	case person.AccessTokenHash != "" && person.VerifyAccessToken(answer.AccessToken) != nil:
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "ID token: it is not of this access token")
	case !looksSigned(answer.AccessToken):
		return Identity{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "the issuer's access token is no signed token, so it has no scopes"),
			"have the issuer sign access tokens for the audience %s; server.oidc.client.parameters can ask for that", a.issuer.opts.Audience)
	}
	id, err := a.issuer.verify(ctx, answer.AccessToken)
	if err != nil {
		return Identity{}, sandbox.Wrap(err, "verify access token", "")
	}
	if id.Principal != a.issuer.principal(person.Subject) {
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "the access token is of another subject than the ID token")
	}
	if err := a.claim(ctx, id); err != nil {
		return Identity{}, err
	}
	id.Expires = person.Expiry
	return id, nil
}

// refusal returns what the issuer said of a code.
func refusal(e *oauth2.RetrieveError) string {
	switch {
	case e.ErrorDescription != "":
		return e.ErrorDescription
	case e.ErrorCode != "":
		return e.ErrorCode
	}
	return e.Response.Status
}
