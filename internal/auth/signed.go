package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// MaxSigned is the longest that a signed URL may be good for.
const MaxSigned = 7 * 24 * time.Hour

// A Signer signs URLs, so that who has one may do one thing with one file until
// it expires, without a token.
type Signer struct {
	// Key is 32 random bytes that only this server has.
	Key []byte
	// Now is the clock, [time.Now] if nil.
	Now func() time.Time
}

// Sign returns the query of a URL by which method may be used on a file of a
// workspace, named by its handle, until expires. Two for different microseconds
// are different.
func (s *Signer) Sign(method, handle, name string, expires time.Time) string {
	exp := strconv.FormatInt(expires.UnixMicro(), 10)
	return "exp=" + exp + "&sig=" + base64.RawURLEncoding.EncodeToString(s.signature(method, handle, name, exp))
}

func (s *Signer) signature(method, handle, name, exp string) []byte {
	m := hmac.New(sha256.New, s.Key)
	// Lengths keep what one part ends with from being what the next begins with.
	for _, part := range []string{method, handle, name, exp} {
		fmt.Fprintf(m, "%d:%s", len(part), part)
	}
	return m.Sum(nil)
}

// SignPort returns a text of letters, digits, dots, dashes and underscores by
// which a port of a sandbox may be reached until expires.
func (s *Signer) SignPort(id string, port int, expires time.Time) string {
	exp := strconv.FormatInt(expires.UnixMicro(), 36)
	return exp + "." + base64.RawURLEncoding.EncodeToString(s.signature("PORT", id, strconv.Itoa(port), exp))
}

// VerifyPort checks what SignPort returned. The error is of kind
// [sandbox.Unauthenticated] if it is wrong, for another port, or has expired.
func (s *Signer) VerifyPort(id string, port int, text string) (expires time.Time, err error) {
	exp, signed, _ := strings.Cut(text, ".")
	sig, err := base64.RawURLEncoding.Strict().DecodeString(signed)
	if err != nil || !hmac.Equal(sig, s.signature("PORT", id, strconv.Itoa(port), exp)) {
		return time.Time{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "the link is not good for this port"),
			"use the whole URL as it was given, or ask for a new one")
	}
	micros, err := strconv.ParseInt(exp, 36, 64)
	if err != nil {
		return time.Time{}, sandbox.Errorf(sandbox.Unauthenticated, "the link has no time")
	}
	return s.unexpired(micros)
}

// unexpired returns the time at which a URL expires, if that is to come.
func (s *Signer) unexpired(micros int64) (time.Time, error) {
	now := s.Now
	if now == nil {
		now = time.Now
	}
	expires := time.UnixMicro(micros)
	if !now().Before(expires) {
		return time.Time{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "exp: the URL expired at %s", expires.UTC().Format(time.RFC3339)),
			"ask for a new one")
	}
	return expires, nil
}

// Verify checks the query of a signed URL. It returns the signature, and an
// error of kind [sandbox.Unauthenticated] for one that is wrong or has expired.
// What was signed for reading may also be asked for with HEAD.
func (s *Signer) Verify(method, handle, name string, query url.Values) (signature []byte, expires time.Time, err error) {
	if method == "HEAD" {
		method = "GET"
	}
	exp := query.Get("exp")
	sig, err := base64.RawURLEncoding.Strict().DecodeString(query.Get("sig"))
	if err != nil || len(query["sig"]) != 1 || len(query["exp"]) != 1 || !hmac.Equal(sig, s.signature(method, handle, name, exp)) {
		return nil, time.Time{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "sig: the signature is not good for this URL and method"),
			"use the whole URL as it was given, or ask for a new one")
	}
	// It is ours, so it is a number.
	micros, err := strconv.ParseInt(exp, 10, 64)
	if err != nil {
		return nil, time.Time{}, sandbox.Errorf(sandbox.Unauthenticated, "exp: not a time")
	}
	if expires, err = s.unexpired(micros); err != nil {
		return nil, time.Time{}, err
	}
	return sig, expires, nil
}
