package e2bapi

import (
	"context"
	"encoding/hex"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// KeyPrefix begins API keys in the form that every SDK takes: the prefix and
// hexadecimal digits. Some versions refuse any other before they ask.
const KeyPrefix = "e2b_"

// Key returns a token of this server as an API key for E2B's SDKs.
func Key(token string) string { return KeyPrefix + hex.EncodeToString([]byte(token)) }

// tokenOf returns the token that an API key stands for: what Key made of it, or
// the token itself, which some versions take, too.
func tokenOf(key string) string {
	if digits, ok := strings.CutPrefix(key, KeyPrefix); ok {
		if token, err := hex.DecodeString(digits); err == nil {
			return string(token)
		}
	}
	return key
}

// Ports of a sandbox, by which E2B tells what in it is meant.
const (
	agentPort       = 49983
	interpreterPort = 49999
)

// A target is what of which sandbox a request of the data plane is for.
type target struct {
	id   string
	port int
}

type targetKey struct{}

// The headers that name a target, and those that prove the right to it. A file
// needs no header but has a signature.
const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
	headerAccess  = "X-Access-Token"
	headerTraffic = "E2b-Traffic-Access-Token"
	headerKey     = "X-Api-Key"
)

// hostForm is the host's name of a target: 49983-sbx_….example.com.
var hostForm = regexp.MustCompile(`^([0-9]{1,5})-(sbx_[a-z2-7]{26})\.`)

// targetOf returns what a request is for; id is "" if that cannot be told from
// its host and headers. It is no request of the data plane if ok is false.
func targetOf(r *http.Request) (t target, ok bool, err error) {
	if id := r.Header.Get(headerSandbox); id != "" {
		t.id, t.port = id, agentPort
		if text := r.Header.Get(headerPort); text != "" {
			if t.port, err = strconv.Atoi(text); err != nil {
				return target{}, true, sandbox.Errorf(sandbox.Invalid, "%s: %s is not a port", headerPort, short(text))
			}
		}
		return t, true, nil
	}
	if m := hostForm.FindStringSubmatch(strings.ToLower(r.Host)); m != nil {
		t.id = m[2]
		t.port, err = strconv.Atoi(m[1])
		return t, true, err
	}
	return target{port: agentPort}, r.URL.Path == guestapi.PathFiles, nil
}

// Authenticate lets requests through whose sender proved who they are, with
// their identity in the context: by an API key for the control plane, and for
// the data plane by the access token of the sandbox or, for a file, a signature
// made with it.
func (s *Server) Authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, isData, err := targetOf(r)
		var id auth.Identity
		switch {
		case err != nil:
		case isData:
			id, t, err = s.identifyData(r, t)
		default:
			id, err = s.identify(r)
		}
		if err != nil {
			s.Refuse(w, r, err)
			return
		}
		ctx := auth.NewContext(r.Context(), id)
		if isData {
			ctx = context.WithValue(ctx, targetKey{}, t)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// identify returns whose the API key of a request is.
func (s *Server) identify(r *http.Request) (auth.Identity, error) {
	key := r.Header.Get(headerKey)
	if key == "" {
		key, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	if key == "" {
		return auth.Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "there is no API key: set E2B_API_KEY to a token of this server")
	}
	return s.opts.Auth.Verify(r.Context(), tokenOf(key))
}

// identifyData returns whose the sandbox is that a request of the data plane is
// for. It says nothing of a sandbox, not even whether it is there, to whom has
// no token of it.
func (s *Server) identifyData(r *http.Request, t target) (auth.Identity, target, error) {
	refused := sandbox.Errorf(sandbox.Unauthenticated, "there is no access token of the sandbox, or one of another")
	signed := t.port == agentPort && r.URL.Path == guestapi.PathFiles && r.URL.Query().Has("signature")
	switch {
	case t.id != "" && (s.opts.Access.Check(t.id, r.Header.Get(headerAccess)) || s.opts.Access.Check(t.id, r.Header.Get(headerTraffic))):
	case t.id != "" && signed:
		if !signedBy(r, s.opts.Access.Token(t.id), s.opts.Now()) {
			return auth.Identity{}, t, refused
		}
	case signed:
		// With one address for all sandboxes the SDK leaves out which one it
		// is, but only one has made this signature.
		var err error
		if t.id, err = s.signatures.find(r, s.opts.Now()); err != nil {
			return auth.Identity{}, t, err
		}
		if t.id == "" {
			return auth.Identity{}, t, refused
		}
	default:
		return auth.Identity{}, t, refused
	}
	p, err := s.opts.Engine.Owner(r.Context(), t.id)
	if err != nil {
		return auth.Identity{}, t, &goneError{err}
	}
	// Whoever got the token had these; see grant.
	id := auth.Identity{Principal: p, Scopes: []auth.Scope{auth.ScopeRun, auth.ScopeFiles}}
	gone, err := s.opts.Auth.Gone(r.Context(), id)
	if err != nil {
		return auth.Identity{}, t, err
	}
	if gone {
		return auth.Identity{}, t, refused
	}
	return id, t, nil
}

// grant checks that an identity may have a token that gives access to all of a
// sandbox.
func grant(id auth.Identity) error {
	if id.Can(auth.ScopeRun) && id.Can(auth.ScopeFiles) {
		return nil
	}
	return &forbiddenError{"the API key needs the scopes run and files"}
}
