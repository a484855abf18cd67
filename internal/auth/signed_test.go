package auth

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestSigner(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := &Signer{Key: []byte("a key that nobody else has, truly"), Now: func() time.Time { return now }}
	other := &Signer{Key: []byte("another"), Now: s.Now}
	signed := s.Sign("GET", "handle", "a/b", now.Add(time.Minute))
	check := func(s *Signer, method, handle, name, query string) error {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.Verify(method, handle, name, q)
		return err
	}
	for _, method := range []string{"GET", "HEAD"} {
		if err := check(s, method, "handle", "a/b", signed); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	for what, err := range map[string]error{
		"another method": check(s, "PUT", "handle", "a/b", signed),
		"another file":   check(s, "GET", "handle", "a/c", signed),
		"another handle": check(s, "GET", "handl", "ea/b", signed),
		"parts moved":    check(s, "GET", "handlea", "/b", signed),
		"another key":    check(other, "GET", "handle", "a/b", signed),
		"nothing":        check(s, "GET", "handle", "a/b", ""),
		"no signature":   check(s, "GET", "handle", "a/b", "exp=1000060"),
		"a later end":    check(s, "GET", "handle", "a/b", "exp=9000060000000&"+signed[len("exp=1000060000000&"):]),
		"twice":          check(s, "GET", "handle", "a/b", signed+"&exp=9000060"),
		"bad base64":     check(s, "GET", "handle", "a/b", "exp=1000060&sig=!!"),
		"empty":          check(s, "GET", "handle", "a/b", "exp=1000060&sig="),
	} {
		if !errors.Is(err, sandbox.Unauthenticated) {
			t.Errorf("%s: %v, want kind unauthenticated", what, err)
		}
	}
	now = now.Add(time.Minute)
	if err := check(s, "GET", "handle", "a/b", signed); !errors.Is(err, sandbox.Unauthenticated) || sandbox.HintOf(err) == "" {
		t.Errorf("expired: %v", err)
	}
}

func FuzzSigner(f *testing.F) {
	s := &Signer{Key: []byte("key"), Now: func() time.Time { return time.Unix(1, 0) }}
	f.Add("GET", "handle", "name", s.Sign("GET", "handle", "name", time.Unix(100, 0)))
	f.Add("PUT", "handle", "name", "exp=5&sig=AAAA")
	f.Fuzz(func(t *testing.T, method, handle, name, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		sig, expires, err := s.Verify(method, handle, name, q)
		if err != nil {
			if !errors.Is(err, sandbox.Unauthenticated) {
				t.Fatal(err)
			}
			return
		}
		if method == "HEAD" {
			method = "GET"
		}
		if want := s.signature(method, handle, name, q.Get("exp")); string(want) != string(sig) || expires.Unix() < 1 {
			t.Fatal("accepted what was not signed")
		}
	})
}

func TestSignPort(t *testing.T) {
	now := time.Unix(1000, 0)
	s := Signer{Key: make([]byte, 32), Now: func() time.Time { return now }}
	until := now.Add(time.Hour)
	link := s.SignPort("sbx_a", 8000, until)
	if got, err := s.VerifyPort("sbx_a", 8000, link); err != nil || !got.Equal(until) {
		t.Errorf("until %v, %v; want %v", got, err, until)
	}
	other := Signer{Key: append(make([]byte, 31), 1), Now: s.Now}
	exp, sig, _ := strings.Cut(link, ".")
	for name, err := range map[string]error{
		"another port":    second(s.VerifyPort("sbx_a", 800, link)),
		"another sandbox": second(s.VerifyPort("sbx_b", 8000, link)),
		"another key":     second(other.VerifyPort("sbx_a", 8000, link)),
		"another time":    second(s.VerifyPort("sbx_a", 8000, exp+"0."+sig)),
		"nothing":         second(s.VerifyPort("sbx_a", 8000, "")),
		"no signature":    second(s.VerifyPort("sbx_a", 8000, exp)),
		"a longer one":    second(s.VerifyPort("sbx_a", 8000, link+"AA")),
	} {
		if !errors.Is(err, sandbox.Unauthenticated) {
			t.Errorf("%s: %v; want unauthenticated", name, err)
		}
	}
	now = until
	if _, err := s.VerifyPort("sbx_a", 8000, link); !errors.Is(err, sandbox.Unauthenticated) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("a link that expired: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
