package screen

import (
	"bytes"
	"testing"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a\tb\nübung 日本 🎉\n", "a\tb\nübung 日本 🎉\n"},
		{"\x1b[2J\x1b]52;c;AAAA\a", "^[[2J^[]52;c;AAAA^G"},
		{"10%\r50%\r\n100%\r\r\n", "10%\n50%\n100%\n\n"},
		{"\x00\x7f\u0085\u009b1m", `^@^?\u0085\u009b1m`},
		{"user\u202etxt.exe\u2066", `user\u202etxt.exe\u2066`},
		{"\xff\xe2\x82", `\xff\xe2\x82`},
		{"\uFFFD", "\uFFFD"},
	} {
		var whole, pieces bytes.Buffer
		v := NewText(&whole)
		if _, err := v.Write([]byte(c.in)); err != nil {
			t.Fatal(err)
		}
		one := NewText(&pieces)
		for i := range len(c.in) {
			if n, err := one.Write([]byte(c.in[i : i+1])); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		for _, v := range []*Text{v, one} {
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if whole.String() != c.want || pieces.String() != c.want {
			t.Errorf("%q: %q, and in pieces %q, want %q", c.in, whole.String(), pieces.String(), c.want)
		}
	}
}
