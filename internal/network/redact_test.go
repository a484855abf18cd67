package network

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestRedactor(t *testing.T) {
	const value, long = "Correct Horse/Battery+1", "Correct Horse/Battery+1, staple"
	a := sandbox.Secret{Name: "A", Value: sandbox.NewSecretValue(value)}
	b := sandbox.Secret{Name: "B", Value: sandbox.NewSecretValue(long)}
	r := newRedactor([]sandbox.Secret{a, b})
	for text, want := range map[string]string{
		"":                                       "",
		"nothing of it":                          "nothing of it",
		"Bearer " + value:                        "Bearer " + a.Placeholder(),
		value + value:                            a.Placeholder() + a.Placeholder(),
		"x" + strings.ToLower(value):             "x" + a.Placeholder(),
		strings.ToUpper(value) + "É":             a.Placeholder() + "É",
		long + ".":                               b.Placeholder() + ".", // though it begins with the other
		"https://a/?k=" + url.QueryEscape(value): "https://a/?k=" + a.Placeholder(),
		"https://a/" + strings.ToLower(url.PathEscape(value)):     "https://a/" + a.Placeholder(),
		"glovebox-secret-A-placeholder Correct Horse/Battery+2 é": "glovebox-secret-A-placeholder Correct Horse/Battery+2 é",
	} {
		if got := r.text(text); got != want {
			t.Errorf("text(%q) = %q, want %q", text, got, want)
		}
	}
	const odd = "it's(so)*wrong!+/=é"
	c := sandbox.Secret{Name: "C", Value: sandbox.NewSecretValue(odd)}
	r = newRedactor([]sandbox.Secret{a, b, c})
	all := ""
	for _, b := range []byte(odd) {
		all += fmt.Sprintf("%%%02x", b)
	}
	in64 := base64.StdEncoding.EncodeToString([]byte("??>" + odd + "?>?"))
	for what, text := range map[string]string{
		"encodeURIComponent":  "it's(so)*wrong!%2B%2F%3D%C3%A9",
		"in lower case":       "it's(so)*wrong!%2b%2f%3d%c3%a9",
		"encodeURI":           "it's(so)*wrong!+/=%C3%A9",
		"QueryEscape":         url.QueryEscape(odd),
		"PathEscape":          url.PathEscape(odd),
		"every byte":          all,
		"one byte":            "%69" + odd[1:],
		"twice":               url.QueryEscape(url.QueryEscape(odd)),
		"twice, one byte":     "%2569" + odd[1:],
		"a plus for a plus":   url.QueryEscape(odd[:len(odd)-2]) + "%C3%A9",
		"after a bad escape":  "it's(so)*wrong!%2B/=%C3%A9",
		"Base64 in an escape": url.QueryEscape(in64),
	} {
		got := r.text("a%20b%zz%" + text + "%2")
		if !strings.HasPrefix(got, "a%20b%zz%") || !strings.HasSuffix(got, "%2") || strings.Count(got, c.Placeholder()) != 1 ||
			what != "Base64 in an escape" && got != "a%20b%zz%"+c.Placeholder()+"%2" {
			t.Errorf("%s: %q becomes %q", what, text, got)
		}
	}
	for text, want := range map[string]string{
		"k=Correct+Horse%2FBattery%2B1":   "k=" + a.Placeholder(),
		"k=Correct%20Horse/Battery%2b1&x": "k=" + a.Placeholder() + "&x",
		"k=Correct%20Horse/Battery%2b2&x": "k=Correct%20Horse/Battery%2b2&x",
	} {
		if got := r.text(text); got != want {
			t.Errorf("text(%q) = %q, want %q", text, got, want)
		}
	}
	// However much is before it and after it, what it decides of an encoding goes.
	for before := range 5 {
		for after := range 5 {
			for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				text := e.EncodeToString([]byte(strings.Repeat("?", before) + value + strings.Repeat("!", after)))
				got := r.text("Basic " + text)
				first, rest, ok := strings.Cut(strings.TrimPrefix(got, "Basic "), a.Placeholder())
				plain, _ := e.WithPadding(base64.NoPadding).DecodeString(first)
				if !ok || strings.Contains(got, text) || strings.Contains(string(plain), value[:1]) || len(rest) > 2*after+4 {
					t.Errorf("%q, with %d before and %d after, becomes %q", text, before, after, got)
				}
			}
		}
	}
	h := http.Header{"X-Echo": {"a", "b " + value}, "X-Other": {"c"}}
	h["X-"+strings.ToUpper(value)] = []string{"1"}
	r.header(h)
	if len(h) != 2 || h["X-Echo"][1] != "b "+a.Placeholder() || h["X-Echo"][0] != "a" || h["X-Other"][0] != "c" {
		t.Errorf("the headers become %v", h)
	}
}

// FuzzRedactor has answers of any form around a secret.
func FuzzRedactor(f *testing.F) {
	const value = "correct-horse+/battery"
	r := newRedactor([]sandbox.Secret{{Name: "A", Value: sandbox.NewSecretValue(value)}})
	f.Add("a", "b", uint8(0))
	f.Add("Basic dXNlcjp", "==", uint8(1))
	f.Fuzz(func(t *testing.T, before, after string, form uint8) {
		text := before + value + after
		switch form % 5 {
		case 4:
			text = before + "%63orrect-horse%2b/battery" + after
		case 1:
			text = before + strings.ToUpper(value) + after
		case 2:
			text = before + url.QueryEscape(value) + after
		case 3:
			text = base64.StdEncoding.EncodeToString([]byte(before + value + after))
		}
		got := r.text(text)
		if plain, err := url.PathUnescape(got); err == nil && strings.Contains(toLower(plain), value) {
			t.Errorf("%q becomes %q", text, got)
		}
		if plain, err := base64.StdEncoding.DecodeString(got); err == nil && strings.Contains(string(plain), value) ||
			strings.Contains(toLower(got), value) || strings.Contains(got, url.QueryEscape(value)) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}
