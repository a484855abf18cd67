package auth

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Issuer names an OpenID Connect issuer whose access tokens are accepted:
// JSON Web Tokens that it signed for an audience, with scopes.
type Issuer struct {
	// URL is exactly what tokens have as iss. Its keys are found by discovery.
	URL string
	// Audience has to be among what tokens have as aud.
	Audience string
	// Scopes are the issuer's names of ours. What a token has besides is
	// ignored.
	Scopes map[Scope]string
}

const (
	// fetchTimeout bounds one question to the issuer.
	fetchTimeout = 5 * time.Second
	// Anybody can send tokens with unknown keys. They make us ask for keys no
	// more often than this, with a few more in the beginning.
	fetchEvery = 10 * time.Second
	fetchBurst = 5
	// keysTTL is how long a key is trusted without asking whether the issuer
	// still has it. An issuer that does not answer is asked again after
	// retryKeys, and its last keys stay good meanwhile.
	keysTTL   = time.Hour
	retryKeys = time.Minute
	// maxIssuerAnswer bounds what is read of an issuer's answer.
	maxIssuerAnswer = 1 << 20
	// maxSubject is the bound that OpenID Connect sets.
	maxSubject = 255
)

// signatures are the algorithms that a token may be signed with: all have a
// public key, so that no key that is known to all can sign.
var signatures = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// issuer verifies the tokens of one issuer. It asks the issuer when the first
// one comes, so that a server starts without it.
type issuer struct {
	opts Issuer
	web  *issuerWeb
	now  func() time.Time

	discovering chan struct{} // held while asking
	mu          sync.Mutex
	verifier    *oidc.IDTokenVerifier
}

func newIssuer(o Issuer, now func() time.Time) *issuer {
	return &issuer{
		opts:        o,
		now:         now,
		web:         &issuerWeb{limit: rate.NewLimiter(rate.Every(fetchEvery), fetchBurst)},
		discovering: make(chan struct{}, 1),
	}
}

// looksSigned reports whether a token may be one of an issuer.
func looksSigned(token string) bool {
	return strings.Count(token, ".") == 2 && !strings.HasPrefix(token, TokenPrefix)
}

// verify returns the identity that a token proves. The error wraps
// [sandbox.Unauthenticated], or [sandbox.Unavailable] if the issuer is needed
// and does not answer.
func (i *issuer) verify(ctx context.Context, text string) (Identity, error) {
	v, err := i.discover(ctx)
	if err != nil {
		return Identity{}, err
	}
	var unavailable error
	token, err := v.Verify(context.WithValue(ctx, unavailableKey{}, &unavailable), text)
	if unavailable != nil {
		return Identity{}, i.unavailable(unavailable)
	}
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return Identity{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "token: it has expired"), "get a new one from the issuer")
	case err != nil:
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "token: %s", strings.TrimPrefix(err.Error(), "oidc: "))
	case token.Subject == "" || len(token.Subject) > maxSubject || strings.ContainsFunc(token.Subject, isControl):
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "token: its sub names nobody")
	}
	var claims struct {
		Scope scopeClaim `json:"scope"`
		SCP   scopeClaim `json:"scp"` // what some issuers call it
	}
	if err := token.Claims(&claims); err != nil {
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "token: its scope is not one: %w", err)
	}
	// Subjects are the issuer's: with another issuer they are others.
	id := Identity{Principal: sandbox.Principal("oidc:" + i.opts.URL + "#" + token.Subject)}
	for _, s := range Scopes() {
		name := i.opts.Scopes[s]
		if name != "" && (claims.Scope.has(name) || claims.SCP.has(name)) {
			id.Scopes = append(id.Scopes, s)
		}
	}
	return id, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func (i *issuer) unavailable(err error) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "token: its issuer %s does not answer: %w", i.opts.URL, err),
		"try again later; tokens that glovebox token made work meanwhile")
}

// discover returns the verifier, asking the issuer where its keys are if that
// is not known yet. One caller asks, the others wait for it.
func (i *issuer) discover(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	known := func() *oidc.IDTokenVerifier {
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.verifier
	}
	if v := known(); v != nil {
		return v, nil
	}
	select {
	case i.discovering <- struct{}{}:
		defer func() { <-i.discovering }()
	case <-ctx.Done():
		return nil, i.unavailable(ctx.Err())
	}
	if v := known(); v != nil {
		return v, nil
	}
	// What is learnt serves others too, so it does not end with this caller.
	long := oidc.ClientContext(context.WithoutCancel(ctx), &http.Client{Transport: i.web, Timeout: fetchTimeout})
	p, err := oidc.NewProvider(long, i.opts.URL)
	if err != nil {
		return nil, i.unavailable(err)
	}
	var document struct {
		Keys string `json:"jwks_uri"`
	}
	if err := p.Claims(&document); err != nil {
		return nil, i.unavailable(err)
	}
	keys := &keySet{issuer: i, fetch: func() *oidc.RemoteKeySet { return oidc.NewRemoteKeySet(long, document.Keys) }}
	keys.current, keys.due = keys.fetch(), i.now().Add(keysTTL)
	v := oidc.NewVerifier(i.opts.URL, keys, &oidc.Config{ClientID: i.opts.Audience, SupportedSigningAlgs: signatures, Now: i.now})
	i.mu.Lock()
	i.verifier = v
	i.mu.Unlock()
	return v, nil
}

// unavailableKey is the key in a context of where to put the reason why keys
// could not be had: the verifier does not keep errors apart.
type unavailableKey struct{}

// A keySet is the issuer's keys. The library asks for them when a key is
// unknown; this also asks from time to time whether those that are known are
// still the issuer's.
type keySet struct {
	issuer *issuer
	fetch  func() *oidc.RemoteKeySet

	mu      sync.Mutex
	current *oidc.RemoteKeySet
	due     time.Time // to ask again
}

// VerifySignature implements [oidc.KeySet].
func (k *keySet) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	k.mu.Lock()
	current := k.current
	renew := !k.issuer.now().Before(k.due)
	if renew {
		k.due = k.issuer.now().Add(retryKeys) // others go on with what there is
	}
	k.mu.Unlock()
	if renew {
		fresh := k.fetch()
		payload, err, failed := k.verify(ctx, fresh, jwt)
		if failed == nil {
			k.mu.Lock()
			k.current, k.due = fresh, k.issuer.now().Add(keysTTL)
			k.mu.Unlock()
			return payload, err
		}
	}
	payload, err, failed := k.verify(ctx, current, jwt)
	if out, ok := ctx.Value(unavailableKey{}).(*error); ok && failed != nil && !errors.Is(failed, errTooOften) {
		*out = failed
	}
	return payload, err
}

// verify returns, beside what the set says, why it could not be asked.
func (k *keySet) verify(ctx context.Context, set *oidc.RemoteKeySet, jwt string) (payload []byte, err, failed error) {
	before := k.issuer.web.failures.Load()
	payload, err = set.VerifySignature(ctx, jwt)
	if err == nil {
		return payload, nil, nil
	}
	if ctx.Err() != nil || errors.Is(err, errTooOften) || k.issuer.web.failures.Load() != before {
		return nil, err, err
	}
	return nil, err, nil
}

// errTooOften is why the issuer is not asked.
var errTooOften = errors.New("the issuer was asked a moment ago")

// issuerWeb asks an issuer, not too often and not for too much, and counts how
// often it gets no answer.
type issuerWeb struct {
	limit    *rate.Limiter
	failures atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (w *issuerWeb) RoundTrip(r *http.Request) (*http.Response, error) {
	if !w.limit.Allow() {
		return nil, errTooOften
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || res.StatusCode >= 400 {
		w.failures.Add(1)
	}
	if err == nil {
		res.Body = &boundedBody{io.LimitReader(res.Body, maxIssuerAnswer), res.Body}
	}
	return res, err
}

type boundedBody struct {
	io.Reader
	io.Closer
}

// A scopeClaim is a text of names with spaces between, or a list of names.
type scopeClaim []string

// UnmarshalJSON implements [json.Unmarshaler].
func (c *scopeClaim) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*c = strings.Fields(text)
		return nil
	}
	return json.Unmarshal(b, (*[]string)(c))
}

func (c scopeClaim) has(name string) bool { return slices.Contains(c, name) }
