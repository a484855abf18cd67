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

// maxSigned is the longest lifetime of a signed URL.
const maxSigned = 7 * 24 * time.Hour

// A Signer signs URLs. The holder of a signed URL may perform one operation on
// one file, without a token, until the URL expires.
type Signer struct {
	// Key is a secret of 32 random bytes.
	Key []byte
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// Expiry returns the time until which a new link is valid. The error wraps
// [sandbox.Invalid] if the lifetime good is out of range; it names the argument
// expires_seconds of the tools that make links.
func (s *Signer) Expiry(good time.Duration) (time.Time, error) {
	if good <= 0 || good > maxSigned {
		return time.Time{}, sandbox.Errorf(sandbox.Invalid, "expires_seconds: %v is not between a second and %v", good, maxSigned)
	}
	return s.now().Add(good), nil
}

// now returns the current time.
func (s *Signer) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// Sign returns the query of a signed URL. It allows method on a file of the
// workspace with that handle, until expires. Two URLs that expire in different
// microseconds are different.
func (s *Signer) Sign(method, handle, name string, expires time.Time) string {
	exp := strconv.FormatInt(expires.UnixMicro(), 10)
	return "exp=" + exp + "&sig=" + base64.RawURLEncoding.EncodeToString(s.signature(method, handle, name, exp))
}

func (s *Signer) signature(method, handle, name, exp string) []byte {
	m := hmac.New(sha256.New, s.Key)
	// The lengths make the encoding unambiguous.
	for _, part := range []string{method, handle, name, exp} {
		fmt.Fprintf(m, "%d:%s", len(part), part)
	}
	return m.Sum(nil)
}

// SignPort returns a signature that gives access to a port of a sandbox until
// expires. It consists of letters, digits, dots, dashes and underscores.
func (s *Signer) SignPort(id string, port int, expires time.Time) string {
	exp := strconv.FormatInt(expires.UnixMicro(), 36)
	return exp + "." + base64.RawURLEncoding.EncodeToString(s.signature("PORT", id, strconv.Itoa(port), exp))
}

// VerifyPort checks a signature of SignPort and returns its expiry. If the
// signature is wrong, expired or for another port, the error wraps
// [sandbox.Unauthenticated].
func (s *Signer) VerifyPort(id string, port int, text string) (expires time.Time, err error) {
	exp, signed, _ := strings.Cut(text, ".")
	sig, err := base64.RawURLEncoding.Strict().DecodeString(signed)
	if err != nil || !hmac.Equal(sig, s.signature("PORT", id, strconv.Itoa(port), exp)) {
		return time.Time{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "the link is not valid for this port"),
			"use the complete URL, or ask for a new one")
	}
	micros, err := strconv.ParseInt(exp, 36, 64)
	if err != nil {
		return time.Time{}, sandbox.Errorf(sandbox.Unauthenticated, "the link has no expiry time")
	}
	return s.unexpired(micros)
}

// unexpired returns the expiry time of a URL, or an error if it has passed.
func (s *Signer) unexpired(micros int64) (time.Time, error) {
	expires := time.UnixMicro(micros)
	if !s.now().Before(expires) {
		return time.Time{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "exp: the URL expired at %s", expires.UTC().Format(time.RFC3339)),
			"ask for a new one")
	}
	return expires, nil
}

// Verify checks the query of a signed URL and returns its signature and expiry.
// If the signature is wrong or expired, the error wraps
// [sandbox.Unauthenticated]. A signature for GET also allows HEAD.
func (s *Signer) Verify(method, handle, name string, query url.Values) (signature []byte, expires time.Time, err error) {
	if method == "HEAD" {
		method = "GET"
	}
	exp := query.Get("exp")
	sig, err := base64.RawURLEncoding.Strict().DecodeString(query.Get("sig"))
	if err != nil || len(query["sig"]) != 1 || len(query["exp"]) != 1 || !hmac.Equal(sig, s.signature(method, handle, name, exp)) {
		return nil, time.Time{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "sig: the signature is not valid for this URL and method"),
			"use the complete URL, or ask for a new one")
	}
	// The signature is valid, so exp is a number.
	micros, err := strconv.ParseInt(exp, 10, 64)
	if err != nil {
		return nil, time.Time{}, sandbox.Errorf(sandbox.Unauthenticated, "exp: must be a time")
	}
	if expires, err = s.unexpired(micros); err != nil {
		return nil, time.Time{}, err
	}
	return sig, expires, nil
}
