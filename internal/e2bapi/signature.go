package e2bapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// signatures finds the sandbox whose access token made a signature. The client is
// not authenticated yet, so the work is bounded. The list of sandboxes is read at
// most once in listEvery, and each sandbox's token is computed once. Concurrent
// searches are divided between client addresses.
type signatures struct {
	live     func(context.Context) ([]string, error)
	token    func(id string) string
	searches *fair.Pool

	mu     sync.Mutex
	listed time.Time
	tokens map[string]string // by ID of live sandboxes
}

const (
	// listEvery is the maximum age of the list of sandboxes. If no sandbox made a
	// signature, the search waits for the next list.
	listEvery = 250 * time.Millisecond
	// searchWait bounds a request's search, which includes the wait for its
	// address's share.
	searchWait = 5 * time.Second
)

func newSignatures(live func(context.Context) ([]string, error), token func(string) string) *signatures {
	return &signatures{
		live: live, token: token, tokens: map[string]string{},
		searches: fair.New(fair.Options{Name: "searches for signatures", Total: int64(max(4, 2*runtime.GOMAXPROCS(0)))}),
	}
}

// find returns the sandbox whose token made a request's signature, or "". The
// error wraps [sandbox.Unauthenticated] if no token can have made the signature.
func (s *signatures) find(r *http.Request, now time.Time) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), searchWait)
	defer cancel()
	asked := time.Now()
	sig, err := readSignature(r, now)
	if err != nil {
		return "", err
	}
	for {
		id, listed, err := s.search(ctx, r, sig)
		if err != nil || id != "" || !listed.Before(asked) {
			return id, err
		}
		// The sandbox may be newer than the list.
		select {
		case <-time.After(time.Until(listed.Add(listEvery))):
		case <-ctx.Done():
			return "", nil
		}
	}
}

// search searches the list once, and returns the time when the list was read.
func (s *signatures) search(ctx context.Context, r *http.Request, sig signature) (id string, listed time.Time, err error) {
	place, err := s.searches.Acquire(ctx, fair.Request{Principal: fair.AddressOf(r.RemoteAddr), Units: 1})
	if err != nil {
		return "", time.Time{}, err
	}
	defer place.Release()
	tokens, listed, err := s.list(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	for id, token := range tokens {
		if sig.by(token) {
			return id, listed, nil
		}
	}
	return "", listed, nil
}

// list returns the tokens of live sandboxes by ID. The map never changes.
func (s *signatures) list(ctx context.Context) (map[string]string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.listed) < listEvery {
		return s.tokens, s.listed, nil
	}
	began := time.Now()
	ids, err := s.live(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	tokens := make(map[string]string, len(ids))
	for _, id := range ids {
		if tokens[id] = s.tokens[id]; tokens[id] == "" {
			tokens[id] = s.token(id)
		}
	}
	s.tokens, s.listed = tokens, began
	return tokens, began, nil
}

// A signature is that of a request for a file, with the text that it signs but for
// the access token.
type signature struct {
	given         []byte
	before, after string // the token
}

// maxSignedQuery bounds the query of a signed URL, in bytes. A path has at most 4 KiB,
// and three times that when it is escaped.
const maxSignedQuery = 16 << 10

// Errors of signatures. Clients of E2B know the text of errExpired.
var (
	errExpired   = sandbox.Errorf(sandbox.Unauthenticated, "signature is already expired")
	errSignature = sandbox.Errorf(sandbox.Unauthenticated, "invalid signature")
)

// readSignature returns a request's signature. The error is errSignature if it is
// malformed, and errExpired if it has expired. Neither depends on a token.
func readSignature(r *http.Request, now time.Time) (signature, error) {
	if len(r.URL.RawQuery) > maxSignedQuery {
		return signature{}, errSignature
	}
	q := r.URL.Query()
	sig := signature{given: []byte(q.Get("signature"))}
	if len(sig.given) != len(signaturePrefix)+base64.RawStdEncoding.EncodedLen(sha256.Size) {
		return signature{}, errSignature
	}
	operation := "read"
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		operation = "write"
	}
	sig.before = q.Get("path") + ":" + operation + ":" + q.Get("username") + ":"
	if q.Has("signature_expiration") {
		at, err := strconv.ParseInt(q.Get("signature_expiration"), 10, 64)
		if err != nil {
			return signature{}, errSignature
		}
		if now.Unix() > at {
			return signature{}, errExpired
		}
		sig.after = ":" + q.Get("signature_expiration")
	}
	return sig, nil
}

const signaturePrefix = "v1_"

// by reports whether the signature was made with the access token.
func (s signature) by(token string) bool {
	sum := sha256.Sum256([]byte(s.before + token + s.after))
	want := signaturePrefix + base64.RawStdEncoding.EncodeToString(sum[:])
	return subtle.ConstantTimeCompare([]byte(want), s.given) == 1
}

// checkSigned returns an error, of kind [sandbox.Unauthenticated], unless a request
// for a file has an unexpired signature that was made with the access token.
func checkSigned(r *http.Request, token string, now time.Time) error {
	sig, err := readSignature(r, now)
	if err == nil && !sig.by(token) {
		err = errSignature
	}
	return err
}
