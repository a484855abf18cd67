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

// A redactor replaces secrets by their placeholders. Hosts return request headers
// in headers of their answers: an origin, a request ID, a cookie.
type redactor struct{ forms []secretForm }

// A secretForm is one encoding of a secret.
type secretForm struct {
	text        string
	fold        bool // text is folded by foldText, and is compared with folded text
	placeholder string
}

func newRedactor(secrets []sandbox.Secret) *redactor {
	r := &redactor{}
	for _, s := range secrets {
		add := func(text string, fold bool) {
			if fold {
				text = foldText(text)
			}
			f := secretForm{text, fold, s.Placeholder()}
			if !slices.Contains(r.forms, f) {
				r.forms = append(r.forms, f)
			}
		}
		for _, value := range hidden(&s) {
			add(value, true)
			for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				for before := range 3 {
					add(insideBase64(e, value, before), false)
				}
			}
		}
	}
	// A secret may contain another, so longer forms come first.
	slices.SortStableFunc(r.forms, func(a, b secretForm) int { return cmp.Compare(len(b.text), len(a.text)) })
	return r
}

// openHeaders are headers whose values say nothing secret. Their values occur in
// headers of answers by themselves.
var openHeaders = []string{"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Type", "Pragma", "User-Agent"}

// minHidden is the least number of bytes of a rule's value that is hidden. A
// shorter text occurs in answers by chance.
const minHidden = 8

// hidden returns the texts of a secret that headers of answers must not have. Those
// of a header rule are its value, the credentials after the name of a scheme, and
// the password of the Basic scheme.
func hidden(s *sandbox.Secret) []string {
	value := s.Value.Reveal()
	if !s.Always {
		return []string{value}
	}
	name := s.Headers[0]
	if slices.Contains(openHeaders, name) {
		return nil
	}
	texts := []string{value}
	if _, credentials, ok := strings.Cut(value, " "); ok {
		texts = append(texts, strings.TrimSpace(credentials))
	}
	if plain, ok := basicCredentials(name, value); ok {
		_, password, _ := strings.Cut(plain, ":")
		texts = append(texts, plain, password)
	}
	return slices.DeleteFunc(texts, func(t string) bool { return len(t) < minHidden })
}

// insideBase64 returns the base64 characters that depend only on value, in a text
// where before bytes of a group of three come before value.
func insideBase64(e *base64.Encoding, value string, before int) string {
	const bits = 6 // of a character
	text := e.EncodeToString(append(make([]byte, before), value...))
	return text[(8*before+bits-1)/bits : 8*(before+len(value))/bits]
}

// percentLayers is the number of percent-encodings that are undone. A URL in the
// query of another URL is encoded twice.
const percentLayers = 2

// text returns s without secrets, plain or percent-encoded. Programs encode
// different sets of characters, so text decodes s instead of encoding the
// secrets.
func (r *redactor) text(s string) string {
	for layers := range percentLayers + 1 {
		v := decode(s, layers)
		if layers > 0 && v.at == nil {
			break // there are no more layers
		}
		for i := range r.forms {
			if without := r.forms[i].replace(s, v); without != s {
				s, v = without, decode(without, layers)
			}
		}
	}
	return s
}

// A decoded is a text after some layers of percent-encoding were removed.
type decoded struct {
	text, folded string
	at           []int // the original offset of each byte of text, and of its end; nil if equal
}

// was returns the original offset of byte i of d.text.
func (d *decoded) was(i int) int {
	if d.at == nil {
		return i
	}
	return d.at[i]
}

// decode removes layers of percent-encoding from s. A "%" that begins no escape
// stays.
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

// replace returns s with the secret replaced by the placeholder. d is decoded
// from s.
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

// foldText returns s in lower case (ASCII only), with "+" replaced by a blank,
// because a query may contain either. The length does not change.
func foldText(s string) string {
	return strings.ReplaceAll(toLower(s), "+", " ")
}

// toLower returns s in lower case (ASCII only). The length does not change.
func toLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// header removes secrets from the headers or trailers of an answer.
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

// A redactedTransport removes secrets from answers, except from their bodies.
type redactedTransport struct {
	http.RoundTripper
	redact *redactor
}

func (t *redactedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err == nil {
		t.redact.header(resp.Header)
		resp.Status = t.redact.text(resp.Status) // it is sent when the protocol changes
	}
	return resp, err
}

// A redactedWriter removes secrets from informational answers, such as early
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
