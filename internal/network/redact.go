package network

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"net/http"
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
	fold        bool // text is what foldText returns, and is compared with that
	placeholder string
}

func newRedactor(secrets []sandbox.Secret) *redactor {
	r := &redactor{}
	for _, s := range secrets {
		value := s.Value.Reveal()
		add := func(text string, fold bool) {
			if fold {
				text = foldText(text)
			}
			f := secretForm{text, fold, s.Placeholder()}
			if !slices.Contains(r.forms, f) {
				r.forms = append(r.forms, f)
			}
		}
		add(value, true)
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

// percentLayers is how often a value may be percent-encoded: a URL in the query of
// another is so twice.
const percentLayers = 2

// text returns s without secrets, as they are and percent-encoded. Programs differ
// in the characters that they encode, so the text is decoded and not the secret
// encoded.
func (r *redactor) text(s string) string {
	for layers := range percentLayers + 1 {
		v := decode(s, layers)
		if layers > 0 && v.at == nil {
			break // it has no more layers
		}
		for i := range r.forms {
			if without := r.forms[i].replace(s, v); without != s {
				s, v = without, decode(without, layers)
			}
		}
	}
	return s
}

// A decoded is a text without some layers of percent-encoding.
type decoded struct {
	text, folded string
	at           []int // where each byte of text, and its end, was before; nil if nothing changed
}

// was returns where byte i of d's text was before.
func (d *decoded) was(i int) int {
	if d.at == nil {
		return i
	}
	return d.at[i]
}

// decode takes so many layers of percent-encoding off s. A "%" that begins no
// escape stays.
func decode(s string, layers int) *decoded {
	d := &decoded{text: s}
	for range layers {
		if !strings.Contains(d.text, "%") {
			break
		}
		var text []byte
		var at []int
		for i := 0; i < len(d.text); i++ {
			at = append(at, d.was(i))
			c := d.text[i]
			if c == '%' && i+2 < len(d.text) {
				if b, err := hex.DecodeString(d.text[i+1 : i+3]); err == nil {
					c = b[0]
					i += 2
				}
			}
			text = append(text, c)
		}
		if len(text) == len(d.text) {
			break
		}
		d.text, d.at = string(text), append(at, len(s))
	}
	d.folded = foldText(d.text)
	return d
}

// replace returns s, which d is decoded from, with the placeholder in the place of
// the secret.
func (f *secretForm) replace(s string, d *decoded) string {
	text := d.text
	if f.fold {
		text = d.folded
	}
	var b strings.Builder
	from, done := 0, 0 // in text, and in s
	for {
		i := strings.Index(text[from:], f.text)
		if i < 0 {
			break
		}
		b.WriteString(s[done:d.was(from+i)])
		b.WriteString(f.placeholder)
		from += i + len(f.text)
		done = d.was(from)
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// foldText returns s, of the same length, with the letters of ASCII in lower case,
// and with blanks in place of "+": a query has either for a blank.
func foldText(s string) string {
	return strings.ReplaceAll(toLower(s), "+", " ")
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
