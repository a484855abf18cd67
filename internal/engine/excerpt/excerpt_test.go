package excerpt

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// excerptOf makes an excerpt of text in which the bytes of gap were dropped.
func excerptOf(tb testing.TB, text string, n int, gapFrom, gapTo int64) (string, int64) {
	tb.Helper()
	total := int64(len(text))
	read := func(offset, n int64) ([]byte, error) {
		end := min(offset+n, total)
		if gapFrom < gapTo && offset < gapTo && end > gapFrom {
			tb.Errorf("read from %d to %d, across the gap %d to %d", offset, end, gapFrom, gapTo)
		}
		return []byte(text[offset:end]), nil
	}
	got, from, omitted, err := Stream{Read: read, Total: total, GapFrom: gapFrom, GapTo: gapTo}.Shorten(n)
	if err != nil {
		tb.Fatal(err)
	}
	// A reader goes on at from: the text before the marker is all before from.
	head, _, cut := strings.Cut(got, fmt.Sprintf("[... %d bytes omitted ...]\n", omitted))
	switch shown, _ := takeHead([]byte(text[:from]), len(text), true); {
	case omitted == 0 && from != total:
		tb.Errorf("nothing is omitted, and a reader goes on at %d of %d", from, total)
	case omitted > 0 && cut && strings.TrimSuffix(head, "\n") != strings.TrimSuffix(shown, "\n"):
		tb.Errorf("the text is %.60q before the omitted part at %d; want %.60q", head, from, shown)
	case omitted > 0 && !cut && from != 0:
		tb.Errorf("only the tail is shown, and a reader goes on at %d", from)
	}
	return got, omitted
}

func TestExcerptWhole(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"a":                              "a",
		"a\nb\n":                         "a\nb\n",
		"a\r\nb\r\n":                     "a\nb\n",
		" 10%\r 50%\r100%\ndone\n":       "100%\ndone\n",
		" 10%\r 50%\r":                   " 50%",
		"\r\r\r\n\n":                     "\n\n",
		"a\rb":                           "b",
		"grüße ✓\n":                      "grüße ✓\n",
		"bad \xff\xfe byte\n":            "bad \uFFFD\uFFFD byte\n",
		"cut \xe2\x9c":                   "cut \uFFFD\uFFFD",
		strings.Repeat("x\r", 1<<20):     "x",
		"\x1b[31mred\x1b[0m\n\x1b[?25l":  "red\n",
		"50%\r\x1b[Kdone\x1b[0m\n":       "done\n",
		strings.Repeat("a\rb\n", 10_000): strings.Repeat("b\n", 10_000),
	} {
		got, omitted := excerptOf(t, in, 64<<10, 0, 0)
		if got != want || omitted != 0 {
			t.Errorf("%.40q: %.40q, %d omitted; want %.40q", in, got, omitted, want)
		}
	}
}

func TestExcerptCounts(t *testing.T) {
	line := "0123456789abcdef grüße ✓\n"
	small, large := strings.Repeat(line, 100), strings.Repeat(line, 200_000)
	for _, c := range []struct {
		name           string
		text           string
		n              int
		gapFrom, gapTo int64
	}{
		{"Small", small, 300, 0, 0},
		{"Large", large, 4096, 0, 0},
		{"LargeWithGap", large, 4096, 1000, 3_000_000},
		{"LargeWithoutHead", large, 4096, 0, 3_000_000},
		{"OneLine", strings.Repeat("é", 100_000), 1001, 0, 0},
		{"OneLargeLine", strings.Repeat("é", 3_000_000), 1001, 0, 0},
		{"TailOnly", small, 100, 0, 0},
		{"NoBudget", small, 0, 0, 0},
		{"Tiny", small, 1, 0, 0},
		{"GapCutsACharacter", strings.Repeat("é", 3_000_000), 3000, 1001, 2_000_001},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, omitted := excerptOf(t, c.text, c.n, c.gapFrom, c.gapTo)
			if len(got) > c.n || !utf8.ValidString(got) || strings.Contains(got, "\uFFFD") {
				t.Errorf("%d bytes for %d, UTF-8 %v", len(got), c.n, utf8.ValidString(got))
			}
			marker := fmt.Sprintf("[... %d bytes omitted ...]\n", omitted)
			head, tail, found := strings.Cut(got, marker)
			if !found {
				head, tail = "", got
			} else if !strings.HasPrefix(c.text, head) {
				head = strings.TrimSuffix(head, "\n") // the marker has a line of its own
			}
			if !strings.HasPrefix(c.text, head) || !strings.HasSuffix(c.text, tail) {
				t.Errorf("head %.30q and tail %.30q are not the text's", head, tail)
			}
			if int64(len(head)+len(tail))+omitted != int64(len(c.text)) {
				t.Errorf("%d and %d shown, %d omitted, of %d", len(head), len(tail), omitted, len(c.text))
			}
			if c.n >= leastSplit && c.gapFrom >= int64(c.n) && len(got) < c.n*3/4 {
				t.Errorf("only %d of %d used", len(got), c.n)
			}
		})
	}
}

// A progress bar counts for what it shows, so it leaves room for the rest.
func TestExcerptOfProgress(t *testing.T) {
	var b strings.Builder
	b.WriteString("begin\n")
	for i := range 50_000 {
		fmt.Fprintf(&b, "\rdone %d of 50000", i+1)
	}
	b.WriteString("\nend\n")
	got, omitted := excerptOf(t, b.String(), 1000, 0, 0)
	if want := "begin\ndone 50000 of 50000\nend\n"; got != want || omitted != 0 {
		t.Errorf("%q, %d omitted", got, omitted)
	}
}

// Colours leave room for the rest, and are not cut.
func TestExcerptOfColours(t *testing.T) {
	text := strings.Repeat("\x1b[38;5;196mred\x1b[0m line\n", 10_000)
	got, omitted := excerptOf(t, text, 1000, 0, 0)
	head, tail, _ := strings.Cut(got, fmt.Sprintf("[... %d bytes omitted ...]\n", omitted))
	if strings.Contains(got, "\x1b") || strings.Contains(got, "38;5") || !strings.HasPrefix(head, "red line\nred line\n") || !strings.HasSuffix(tail, "red line\nred line\n") || len(got) < 900 {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add("00000\r\xc3"+strings.Repeat("0", 99), 390, uint16(7), uint16(100))
	f.Add("\x1b[1mab\r\x1b[K\x1b]0;t\ac\n", 300, uint16(0), uint16(0))
	f.Add("a\r\nb\xff\r", 10, uint16(0), uint16(0))
	f.Add(strings.Repeat("ü\r\n", 300), 300, uint16(7), uint16(100))
	f.Fuzz(func(t *testing.T, text string, n int, from, to uint16) {
		gapFrom, gapTo := int64(from), int64(to)
		if n < 0 || n > 1<<20 {
			t.Skip()
		}
		if gapFrom >= gapTo || gapTo > int64(len(text)) {
			gapFrom, gapTo = 0, 0
		}
		got, omitted := excerptOf(t, text, n, gapFrom, gapTo)
		if len(got) > n || !utf8.ValidString(got) || strings.Contains(got, "\r") {
			t.Errorf("%q is no excerpt in %d bytes", got, n)
		}
		if omitted < gapTo-gapFrom || omitted > int64(len(text)) {
			t.Errorf("%d omitted of %d, with a gap of %d", omitted, len(text), gapTo-gapFrom)
		}
	})
}
