package network

import (
	"encoding/base64"
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
		switch form % 4 {
		case 1:
			text = before + strings.ToUpper(value) + after
		case 2:
			text = before + url.QueryEscape(value) + after
		case 3:
			text = base64.StdEncoding.EncodeToString([]byte(before + value + after))
		}
		got := r.text(text)
		if plain, err := base64.StdEncoding.DecodeString(got); err == nil && strings.Contains(string(plain), value) ||
			strings.Contains(toLower(got), value) || strings.Contains(got, url.QueryEscape(value)) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}
