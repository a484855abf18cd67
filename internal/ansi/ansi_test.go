package ansi

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"a\nb":                        "a\nb",
		"a\r\nb\r\n":                  "a\nb\n",
		"10%\r50%\r100%\n":            "100%\n",
		"50%\r":                       "50%",
		"\x1b[1;31mred\x1b[0m text\n": "red text\n",
		"\x1b]0;title\atext":          "text",
		"\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\\n": "link\n",
		"\u009b31mred\u009bm":                         "red",
		"\u009d0;title\u009ctext":                     "text",
		"\x1bPdata\x1b\\x":                            "x",
		"\x1b(Bx\x1b=y\x1b7z":                         "xyz",
		"50%\r\x1b[?25h\n":                            "50%\n", // a cursor is shown again
		"50%\r\x1b[Kdone\n":                           "done\n",
		"50%\r\x1b[K\n":                               "\n", // and nothing else
		"50%\x1b[2K\x1b[1Gdone\n":                     "done\n",
		"50%\x1b[2K\n":                                "\n",
		"long\rab\x1b[K\n":                            "ab\n",
		"\x1b[32m50%\x1b[0m\r\x1b[32m60%\x1b[0m\r\n":  "60%\n",
		"a\x1b[5":                                     "a",
		"a\x1b":                                       "a",
		"a\x1b[5\nb":                                  "a\nb", // a broken sequence
		"a\x1b]0;title\nb":                            "a\nb",
		"a\x1b\xffb":                                  "a\xffb",
		"grüße \u00a0 ✓":                              "grüße \u00a0 ✓",
		"caf\xc2":                                     "caf\xc2",
	} {
		if got := string(Text([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestWhole(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "a": 1, "a\x1b": 1, "a\x1b[1;3": 1, "a\x1b[1m": 5, "\x1b[1": 3, "a\x1b]0;tit": 1,
		"a\x1b]" + strings.Repeat("x", maxHeld): maxHeld + 3,
	} {
		if got := Whole([]byte(in)); got != want {
			t.Errorf("%.20q: %d, want %d", in, got, want)
		}
	}
}

// TestTextOfALongBar takes as long for a long line as its length says.
func TestTextOfALongBar(t *testing.T) {
	bar := strings.Repeat("\x1b[2K\x1b[1G\x1b[32m50%\x1b[0m", 100_000)
	if got := string(Text([]byte(bar))); got != "50%" {
		t.Errorf("%.40q", got)
	}
	open := strings.Repeat("\x1b]", 1_000_000)
	if got := Text([]byte(open)); len(got) != 0 {
		t.Errorf("%.40q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("\x1b[1;31mred\x1b[0m\r\x1b[K50%\r\n\x1b]0;t\a"), uint16(3))
	f.Add([]byte("\u009b3\u009d\x1b\\\xc2"), uint16(1))
	f.Fuzz(func(t *testing.T, p []byte, at uint16) {
		before := bytes.Clone(p)
		text := Text(p)
		if !bytes.Equal(p, before) {
			t.Fatal("the input is changed")
		}
		if len(text) > len(p) || bytes.Count(text, []byte("\n")) != bytes.Count(p, []byte("\n")) {
			t.Errorf("%q is no text of %q", text, p)
		}
		if bytes.IndexByte(text, esc) >= 0 || bytes.IndexByte(text, '\r') >= 0 {
			t.Errorf("%q of %q has control characters", text, p)
		}
		if utf8.Valid(p) && !utf8.Valid(text) {
			t.Errorf("%q of %q is not UTF-8", text, p)
		}
		// A sequence is not cut between two pages.
		cut := p[:min(int(at), len(p))]
		n := Whole(cut)
		if n < 0 || n > len(cut) || len(cut) > 0 && n == 0 {
			t.Fatalf("%d of %q are whole", n, cut)
		}
		if i := bytes.LastIndexByte(cut[n:], esc); n < len(cut) && i < 0 && !bytes.Contains(cut[n:], []byte{0xc2}) {
			t.Errorf("%q is held back", cut[n:])
		}
	})
}
