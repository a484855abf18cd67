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

// An Issuer is an OpenID Connect issuer whose access tokens are accepted. The
// tokens are JSON Web Tokens with scopes, signed for an audience.
type Issuer struct {
	// URL must be equal to the iss claim of tokens. Discovery at this URL finds
	// the keys.
	URL string
	// Audience must be one of a token's aud values.
	Audience string
	// Scopes maps each scope to the issuer's name for it. Other scopes of a token
	// are ignored.
	Scopes map[Scope]string
	// GroupClaim is the claim with the groups of a token's subject; "" is none. Groups
	// maps the issuer's names to names of our groups. Others are ignored.
	GroupClaim string
	Groups     map[string]string
	// Client, if not nil, lets people sign in at the issuer.
	Client *Client
}

const (
	// fetchTimeout is the timeout of one request to the issuer.
	fetchTimeout = 5 * time.Second
	// These limit the rate of requests to the issuer. Any client can send a token
	// with an unknown key, which causes a request.
	fetchEvery = 10 * time.Second
	fetchBurst = 5
	// keysTTL is how long a key is trusted until the issuer must confirm it. If
	// the issuer does not answer, the next attempt is after retryKeys. Until
	// then, the last keys remain valid.
	keysTTL   = time.Hour
	retryKeys = time.Minute
	// retryDiscovery is how long after a failure a sign-in asks the issuer again for its
	// endpoints. After a success, it does so after keysTTL.
	retryDiscovery = 10 * time.Second
	// maxIssuerAnswer bounds the size of an issuer's answer, in bytes.
	maxIssuerAnswer = 1 << 20
	// maxSubject is the limit of OpenID Connect for subjects.
	maxSubject = 255
)

// signatures are the accepted signature algorithms. All of them are asymmetric,
// because a public key must not be able to sign.
var signatures = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// issuer verifies the tokens of one issuer. It contacts the issuer when the first
// token arrives, so the server can start without the issuer.
type issuer struct {
	opts Issuer
	web  *issuerWeb
	now  func() time.Time

	discovering chan struct{} // held during discovery
	mu          sync.Mutex
	known       *discovered // nil before the first discovery that succeeds
}

// discovered is what an issuer says of itself.
type discovered struct {
	verifier *oidc.IDTokenVerifier
	keysURL  string
	keys     *keySet
	flow     *codeFlow // or flowErr, if there is a client
	flowErr  error
	due      time.Time // from when on a sign-in asks the issuer again
}

func newIssuer(o Issuer, now func() time.Time) *issuer {
	return &issuer{
		opts:        o,
		now:         now,
		web:         &issuerWeb{limit: rate.NewLimiter(rate.Every(fetchEvery), fetchBurst)},
		discovering: make(chan struct{}, 1),
	}
}

// looksSigned reports whether a token may be a JSON Web Token of an issuer.
func looksSigned(token string) bool {
	return strings.Count(token, ".") == 2 && !strings.HasPrefix(token, TokenPrefix)
}

// verify returns the identity that a token proves. The error wraps
// [sandbox.Unauthenticated], or [sandbox.Unavailable] if the issuer is needed and
// does not answer.
func (i *issuer) verify(ctx context.Context, text string) (Identity, error) {
	d, err := i.discover(ctx, false)
	if err != nil {
		return Identity{}, err
	}
	token, err := i.verifySigned(ctx, d.verifier, text, i.opts.Audience)
	if err != nil {
		return Identity{}, err
	}
	var claims struct {
		Scope scopeClaim `json:"scope"`
		SCP   scopeClaim `json:"scp"` // some issuers use this name
	}
	if err := token.Claims(&claims); err != nil {
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "token: the claim scope is not valid: %w", err)
	}
	id := Identity{Principal: i.principal(token.Subject), Expires: token.Expiry}
	for _, s := range Scopes() {
		name := i.opts.Scopes[s]
		if name != "" && (claims.Scope.has(name) || claims.SCP.has(name)) {
			id.Scopes = append(id.Scopes, s)
		}
	}
	if i.opts.GroupClaim != "" {
		if id.Groups, err = i.groups(token); err != nil {
			return Identity{}, err
		}
	}
	return id, nil
}

// principal returns the principal of a subject. Subjects are unique only within one
// issuer, so it includes the issuer's URL.
func (i *issuer) principal(subject string) sandbox.Principal {
	return sandbox.Principal("oidc:" + i.opts.URL + "#" + subject)
}

// verifySigned verifies a token of the issuer for an audience. Errors are as of verify.
func (i *issuer) verifySigned(ctx context.Context, v *oidc.IDTokenVerifier, text, audience string) (*oidc.IDToken, error) {
	var unavailable error
	token, err := v.Verify(context.WithValue(ctx, unavailableKey{}, &unavailable), text)
	if unavailable != nil {
		return nil, i.unavailable(unavailable)
	}
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "token: the token has expired"), "get a new one from the issuer")
	case err != nil:
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "token: %s", strings.TrimPrefix(err.Error(), "oidc: ")),
			"get an access token from %s for the audience %s", i.opts.URL, audience)
	case token.Subject == "" || len(token.Subject) > maxSubject || strings.ContainsFunc(token.Subject, isControl):
		return nil, sandbox.Errorf(sandbox.Unauthenticated, "token: the claim sub is not a valid subject")
	}
	return token, nil
}

// groups returns the names of our groups that a token claims, sorted.
func (i *issuer) groups(token *oidc.IDToken) ([]string, error) {
	var all map[string]json.RawMessage
	var names scopeClaim
	err := token.Claims(&all)
	if text, ok := all[i.opts.GroupClaim]; err == nil && ok {
		err = json.Unmarshal(text, &names)
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unauthenticated, "token: the claim %s is no list of groups: %w", i.opts.GroupClaim, err)
	}
	groups := []string{}
	for _, name := range names {
		if group := i.opts.Groups[name]; group != "" {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func (i *issuer) unavailable(err error) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "token: its issuer %s does not answer: %w", i.opts.URL, err),
		"try again later, or use a token from glovebox token create")
}

// discover returns what the issuer says of itself. The first call asks the issuer, and
// concurrent calls wait for the answer. A sign-in asks again when the answer is due for
// renewal, because endpoints move, and because an answer without usable endpoints may be
// a mistake that its operator corrects. If the issuer then does not answer, the last
// answer remains.
func (i *issuer) discover(ctx context.Context, signIn bool) (*discovered, error) {
	last := func() *discovered {
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.known
	}
	good := func(d *discovered) bool { return d != nil && (!signIn || i.now().Before(d.due)) }
	if d := last(); good(d) {
		return d, nil
	}
	select {
	case i.discovering <- struct{}{}:
		defer func() { <-i.discovering }()
	case <-ctx.Done():
		return nil, i.unavailable(ctx.Err())
	}
	before := last()
	if good(before) {
		return before, nil
	}
	d, err := i.ask(ctx, before)
	if err != nil && before == nil {
		return nil, err
	}
	if err != nil {
		again := *before
		d, again.due = &again, i.now().Add(retryDiscovery)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known = d
	return d, nil
}

// ask asks the issuer what it says of itself. The known keys of the answer before remain
// if their address does.
func (i *issuer) ask(ctx context.Context, before *discovered) (*discovered, error) {
	// The result serves other callers, too, so do not cancel the request with
	// this caller.
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
	d := &discovered{keysURL: document.Keys, due: i.now().Add(keysTTL)}
	if before != nil && before.keysURL == d.keysURL {
		d.keys = before.keys
	} else {
		d.keys = &keySet{issuer: i, fetch: func() *oidc.RemoteKeySet { return oidc.NewRemoteKeySet(long, document.Keys) }}
		d.keys.current, d.keys.due = d.keys.fetch(), i.now().Add(keysTTL)
	}
	d.verifier = oidc.NewVerifier(i.opts.URL, d.keys, &oidc.Config{ClientID: i.opts.Audience, SupportedSigningAlgs: signatures, Now: i.now})
	if i.opts.Client != nil {
		if d.flow, err = newCodeFlow(i.opts, p, d.keys, i.now); err != nil {
			d.flowErr, d.due = i.unavailable(err), i.now().Add(retryDiscovery)
		}
	}
	return d, nil
}

// unavailableKey is a context key for a pointer to an error. The key set stores
// there why it could not get keys, because the verifier does not wrap errors.
type unavailableKey struct{}

// A keySet is the issuer's set of keys. The library fetches keys only when a key
// is unknown. The keySet also fetches them at intervals, to drop keys that the
// issuer has withdrawn.
type keySet struct {
	issuer *issuer
	fetch  func() *oidc.RemoteKeySet

	mu      sync.Mutex
	current *oidc.RemoteKeySet
	due     time.Time // time of the next fetch
}

// VerifySignature implements [oidc.KeySet].
func (k *keySet) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	k.mu.Lock()
	current := k.current
	renew := !k.issuer.now().Before(k.due)
	if renew {
		k.due = k.issuer.now().Add(retryKeys) // concurrent calls use the current keys
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

// verify verifies a signature with the set. failed is not nil if the set could
// not get the issuer's keys.
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

// errTooOften is the error if the rate limit prevents a request to the issuer.
var errTooOften = errors.New("the last request to the issuer was too recent")

// issuerWeb sends requests to an issuer. It limits their rate and the size of
// answers, and counts failures.
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

// A scopeClaim is a list of names: a JSON array, or a string with spaces between
// the names.
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
