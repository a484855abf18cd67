package network

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A redactor puts placeholders in the place of secrets. Hosts send back headers of
// requests in headers of their answers: an origin, a request's identifier, a
// cookie.
type redactor struct{ forms []secretForm }

// A secretForm is one way to write a secret.
type secretForm struct {
	text        string
	fold        bool // in either case; text is in lower case then
	placeholder string
}

func newRedactor(secrets []sandbox.Secret) *redactor {
	r := &redactor{}
	for _, s := range secrets {
		value := s.Value.Reveal()
		add := func(text string, fold bool) {
			if fold {
				text = toLower(text)
			}
			f := secretForm{text, fold, s.Placeholder()}
			if !slices.Contains(r.forms, f) {
				r.forms = append(r.forms, f)
			}
		}
		for _, text := range []string{value, url.QueryEscape(value), url.PathEscape(value)} {
			add(text, true)
		}
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			for before := range 3 {
				add(insideBase64(e, value, before), false)
			}
		}
	}
	// One secret may be in another.
	slices.SortStableFunc(r.forms, func(a, b secretForm) int { return cmp.Compare(len(b.text), len(a.text)) })
	return r
}

// insideBase64 returns the characters that value alone decides in the encoding of
// a text in which that many bytes, of three, are before it.
func insideBase64(e *base64.Encoding, value string, before int) string {
	const bits = 6 // of a character
	text := e.EncodeToString(append(make([]byte, before), value...))
	return text[(8*before+bits-1)/bits : 8*(before+len(value))/bits]
}

// text returns s without secrets.
func (r *redactor) text(s string) string {
	for _, f := range r.forms {
		s = f.replace(s)
	}
	return s
}

func (f *secretForm) replace(s string) string {
	if !f.fold {
		return strings.ReplaceAll(s, f.text, f.placeholder)
	}
	lower := toLower(s)
	if !strings.Contains(lower, f.text) {
		return s
	}
	var b strings.Builder
	for {
		i := strings.Index(lower, f.text)
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		b.WriteString(f.placeholder)
		s, lower = s[i+len(f.text):], lower[i+len(f.text):]
	}
}

// toLower returns s, of the same length, with the letters of ASCII in lower case.
func toLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// header takes secrets out of an answer's headers, or its trailers.
func (r *redactor) header(h http.Header) {
	for name, values := range h {
		if r.text(name) != name {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = r.text(v)
		}
	}
}

// A redactedTransport takes secrets out of answers, but not out of their bodies.
type redactedTransport struct {
	http.RoundTripper
	redact *redactor
}

func (t *redactedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err == nil {
		t.redact.header(resp.Header)
		resp.Status = t.redact.text(resp.Status) // which is said when a protocol changes
	}
	return resp, err
}

// A redactedWriter takes secrets out of what comes before an answer, such as early
// hints.
type redactedWriter struct {
	http.ResponseWriter
	redact *redactor
}

func (w *redactedWriter) WriteHeader(code int) {
	w.redact.header(w.Header())
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for [http.ResponseController].
func (w *redactedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
