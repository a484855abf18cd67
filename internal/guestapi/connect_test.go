package guestapi

import "testing"

func TestCleanText(t *testing.T) {
	for in, want := range map[string]string{
		"one\ntwo\tthree":                    "one two three",
		"a\x1b[31mred":                       "a[31mred",
		"a\u009b31mred\u0085b\u2028c\u202ed": "a31mredbcd",
		"grüße, 世界":                          "grüße, 世界",
		"bad \xff":                           "bad \uFFFD",
	} {
		if got := cleanText(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
