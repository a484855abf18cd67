package e2bapi

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// KeyPrefix is the prefix of API keys; hexadecimal digits follow it. All SDKs
// accept this form, and some versions refuse any other before they send a
// request.
const KeyPrefix = "e2b_"

// Key returns a token of this server as an API key for E2B's SDKs.
func Key(token string) string { return KeyPrefix + hex.EncodeToString([]byte(token)) }

// tokenOf returns the token in an API key. A key that Key did not make is taken
// as the token itself, since some SDKs allow that.
func tokenOf(key string) string {
	if digits, ok := strings.CutPrefix(key, KeyPrefix); ok {
		if token, err := hex.DecodeString(digits); err == nil {
			return string(token)
		}
	}
	return key
}

// These ports of a sandbox belong to E2B's agent and code interpreter.
const (
	agentPort       = 49983
	interpreterPort = 49999
)

// A target is the sandbox and port that a data-plane request is for.
type target struct {
	id   string
	port int
}

// isPort reports whether a target is a port of a program, and not one of E2B's own.
func (t target) isPort() bool { return t.port != agentPort && t.port != interpreterPort }

type targetKey struct{}

// These headers name a target, or prove the right to access it. A file URL has a
// signature instead.
const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
	headerAccess  = "X-Access-Token"
	headerTraffic = "E2b-Traffic-Access-Token"
	headerKey     = "X-Api-Key"
)

// hostForm matches the host name of a target: 49983-sbx….example.com. Older
// host names have the underscore of the identifier.
var hostForm = regexp.MustCompile(`^([0-9]{1,5})-(sbx_?[a-z2-7]{26})\.`)

// targetOf returns the target of a request. ok is false if the request is not for
// the data plane. id is "" if neither host nor headers name the sandbox.
func targetOf(r *http.Request) (t target, ok bool, err error) {
	if id := r.Header.Get(headerSandbox); id != "" {
		t.id, t.port = sandbox.CanonicalID(id), agentPort
		if text := r.Header.Get(headerPort); text != "" {
			if t.port, err = strconv.Atoi(text); err != nil {
				return target{}, true, sandbox.Errorf(sandbox.Invalid, "%s: %s is not a port", headerPort, short(text))
			}
		}
		return t, true, nil
	}
	if m := hostForm.FindStringSubmatch(strings.ToLower(r.Host)); m != nil {
		t.id = sandbox.CanonicalID(m[2])
		t.port, err = strconv.Atoi(m[1])
		return t, true, err
	}
	return target{port: agentPort}, r.URL.Path == guestapi.PathFiles, nil
}

// Authenticate calls next for requests with valid credentials, with the identity
// in the context. The control plane needs an API key. The data plane needs the
// sandbox's access token, its traffic token for ports or, for a file, a signature
// made with the access token. The files of a volume need the
// volume's token.
func (s *Server) Authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, isData, err := targetOf(r)
		var id auth.Identity
		switch {
		case err != nil:
		case isData:
			id, t, err = s.identifyData(r, t)
		case s.isUpload(r):
			id, err = s.identifyUpload(r)
		case strings.HasPrefix(r.URL.Path, contentPath):
			id, err = s.identifyVolume(r)
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

// hintKey is the hint for requests without a valid API key.
const hintKey = "glovebox token create NAME --e2b on the server's machine makes an API key"

// identify returns the owner of a request's API key.
func (s *Server) identify(r *http.Request) (auth.Identity, error) {
	key := r.Header.Get(headerKey)
	if key == "" {
		key, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	if key == "" {
		return auth.Identity{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "there is no API key: set E2B_API_KEY to a token of this server"), hintKey)
	}
	id, err := s.opts.Auth.Verify(r.Context(), tokenOf(key))
	if errors.Is(err, sandbox.Unauthenticated) {
		err = sandbox.WithHint(err, hintKey)
	}
	return id, err
}

// isUpload reports whether a request is an upload to a signed address of a template.
func (s *Server) isUpload(r *http.Request) bool {
	return s.opts.Templates != nil && s.opts.Templates.IsUpload(r)
}

// identifyUpload returns the owner of the template that an upload is for.
func (s *Server) identifyUpload(r *http.Request) (auth.Identity, error) {
	p, err := s.opts.Templates.Uploader(r)
	if err != nil {
		return auth.Identity{}, err
	}
	return s.owner(r.Context(), p, sandbox.Errorf(sandbox.Unauthenticated, "the API key that asked for the address of the upload is not valid any more"))
}

// owner returns the identity of a principal whose API key made the token of a
// request. Without a valid API key of the principal, it returns refused.
func (s *Server) owner(ctx context.Context, p sandbox.Principal, refused error) (auth.Identity, error) {
	// The client had both scopes when it got the token; see grant.
	id := auth.Identity{Principal: p, Scopes: []auth.Scope{auth.ScopeRun, auth.ScopeFiles}}
	gone, err := s.opts.Auth.Gone(ctx, id)
	if err != nil {
		return auth.Identity{}, err
	}
	if gone {
		return auth.Identity{}, refused
	}
	return id, nil
}

// identifyData returns the owner of the sandbox that a data-plane request is for.
// Without the sandbox's token, the error does not reveal whether the sandbox
// exists.
func (s *Server) identifyData(r *http.Request, t target) (auth.Identity, target, error) {
	refused := sandbox.Errorf(sandbox.Unauthenticated, "there is no access token of the sandbox, or one of another")
	if t.isPort() {
		refused = noTrafficToken(t, r.Header.Get(headerTraffic) != "")
	}
	signed := t.port == agentPort && r.URL.Path == guestapi.PathFiles && r.URL.Query().Has("signature")
	switch {
	case t.id != "" && s.opens(r, t):
	case t.id != "" && signed:
		if err := checkSigned(r, s.opts.Access.Token(t.id), s.opts.Now()); err != nil {
			return auth.Identity{}, t, err
		}
	case signed:
		// If all sandboxes have one URL, the SDK does not name the sandbox. Only
		// the sandbox's own token made the signature, so search for it.
		var err error
		if t.id, err = s.signatures.find(r, s.opts.Now()); err != nil {
			return auth.Identity{}, t, err
		}
		if t.id == "" {
			return auth.Identity{}, t, refused
		}
	case s.publicPort(r.Context(), t):
	default:
		return auth.Identity{}, t, refused
	}
	p, err := s.opts.Engine.Owner(r.Context(), t.id)
	if err != nil && t.isPort() {
		return auth.Identity{}, t, portGone(t, err)
	}
	if err != nil {
		return auth.Identity{}, t, &goneError{err}
	}
	id, err := s.owner(r.Context(), p, refused)
	return id, t, err
}

// opens reports whether a request has a token that opens its target. The access
// token opens everything. The traffic token opens ports of programs and the list of
// contexts, for which SDKs send no other token; it runs no code.
func (s *Server) opens(r *http.Request, t target) bool {
	traffic := r.Header.Get(headerTraffic)
	switch {
	case s.opts.Access.Check(t.id, r.Header.Get(headerAccess)):
		return true
	case t.port == agentPort:
		return false
	case s.opts.Access.Check(t.id, traffic): // clients have it from earlier versions
		return true
	case !t.isPort() && r.URL.Path == guestapi.PathExecute:
		return false
	}
	return s.opts.Access.CheckTraffic(t.id, traffic)
}

// publicPort reports whether a target is a port that needs no token. One of an ended
// sandbox is, too, so that its clients learn that it has ended. Of all others, ended
// or never made, a client without a token learns nothing.
func (s *Server) publicPort(ctx context.Context, t target) bool {
	if !s.opts.PublicPorts || !t.isPort() {
		return false
	}
	labels, err := s.opts.Engine.Labels(ctx, t.id)
	return err == nil && labels[labelPublic] != ""
}

// grant checks that an identity may get a token with full access to a sandbox.
func grant(id auth.Identity) error {
	if id.Can(auth.ScopeRun) && id.Can(auth.ScopeFiles) {
		return nil
	}
	return &forbiddenError{"the API key needs the scopes run and files"}
}
