package replay

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const head = `{"version": 2, "width": 80, "height": 24, "timestamp": 1, "env": {"TERM": "xterm"}}` + "\n"

// play plays events, and returns what was written and how long each pause was.
func play(t *testing.T, text string, o Options) (string, []time.Duration, error) {
	t.Helper()
	var out bytes.Buffer
	var pauses []time.Duration
	o.Sleep = func(ctx context.Context, d time.Duration) error {
		pauses = append(pauses, d)
		return ctx.Err()
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	err := Play(t.Context(), strings.NewReader(text), &out, o)
	return out.String(), pauses, err
}

func TestPlay(t *testing.T) {
	events := `[0.5, "o", "a"]
[1, "i", "typed"]
[1.5, "r", "100x30"]

[10.5, "o", "\u001b[3"]
[10.4, "o", "1mred"]`
	for _, c := range []struct {
		o    Options
		want []time.Duration
	}{
		{Options{}, []time.Duration{500 * time.Millisecond, 10 * time.Second}},
		{Options{Speed: 2, IdleLimit: 2 * time.Second}, []time.Duration{250 * time.Millisecond, time.Second}},
	} {
		out, pauses, err := play(t, head+events, c.o)
		if want := "a\x1b[31mred" + usual; err != nil || out != want {
			t.Errorf("%q, %v; want %q", out, err, want)
		}
		if diff := cmp.Diff(c.want, pauses); diff != "" {
			t.Errorf("pauses (-want +got):\n%s", diff)
		}
	}
	title := `[0, "o", "\u001b]0;x\u0007y"]`
	if out, _, err := play(t, head+title, Options{}); err != nil || out != "y" {
		t.Errorf("filtered: %q, %v", out, err)
	}
	if out, _, err := play(t, head+title, Options{Raw: true}); err != nil || out != "\x1b]0;x\ay"+usual {
		t.Errorf("raw: %q, %v", out, err)
	}
}

func TestPlayCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	err := Play(ctx, strings.NewReader(head+`[0, "o", "\u001b[?1049h"]`+"\n"+`[5, "o", "late"]`), &out, Options{Speed: 1, Sleep: func(ctx context.Context, _ time.Duration) error {
		cancel()
		return ctx.Err()
	}})
	if !errors.Is(err, context.Canceled) || out.String() != "\x1b[?1049h"+usual {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestPlayInvalid(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "line 1",
		"hello\n":                             "line 1",
		"[]\n":                                "line 1",
		`{"version": 1}`:                      "another version",
		`{"version": 3}`:                      "another version",
		head + "x":                            "line 2",
		head + `[1, "o"]`:                     "line 2",
		head + `[1, "o", "a", "b"]`:           "line 2",
		head + `[-1, "o", "a"]`:               "line 2",
		head + `["1", "o", "a"]`:              "line 2",
		head + `[1e99, "o", "a"]`:             "line 2",
		head + "\n" + `[1, 2, "a"]`:           "line 3",
		head + strings.Repeat("x", maxLine+1): "more than 16 MiB",
	} {
		if _, _, err := play(t, text, Options{}); !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), want) || sandbox.HintOf(err) == "" {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestFilter(t *testing.T) {
	for in, want := range map[string]string{
		"plain é ☃ \x1b[1;38;2;1;2;3mx\x1b[0m\r\n\t\b\a": "plain é ☃ \x1b[1;38;2;1;2;3mx\x1b[0m\r\n\t\b\a",
		"\x1b[4:3mcurly":                            "\x1b[4:3mcurly",
		"\x1b[H\x1b[2J\x1b[10;5H\x1b[K\x1b[3L":      "\x1b[H\x1b[2J\x1b[10;5H\x1b[K\x1b[3L",
		"\x1b[?1049h\x1b[?25l\x1b[?7h":              "\x1b[?1049h\x1b[?25l\x1b[?7h",
		"\x1b7\x1b8\x1bM\x1b(0q\x1b(B":              "\x1b7\x1b8\x1bM\x1b(0q\x1b(B",
		"\x1b]0;title\a.":                           ".", // titles come back as keys
		"\x1b]52;c;ZXZpbA==\x1b\\.":                 ".", // the clipboard
		"\x1b]8;;https://evil.example\aa\x1b]8;;\a": "a",
		"\x1b]9;notice\a.":                          ".",
		"\x1bPtmux;x\x1b\\.":                        ".",
		"\x1b_Gf=100,t=f;L2V0Yy9wYXNzd2Q=\x1b\\.":   ".", // a picture from a file
		"\x1b[c\x1b[>c\x1b[6n\x1b[21t\x1b[?u\x1bZ\x05\x1b[0x\x1b[?1$p\x1b[>q": "", // questions
		"\x1b[?1000h\x1b[?1003;1006h\x1b[?2004h\x1b[?25;1000h\x1b[>1u\x1b=":   "", // mice and keys
		"\x1b[8;1;1t\x1b[5i\x1bc\x1b[99999b":                                  "",
		"\x7f\x00\x18\x1a\u009b31m\u0090x\u009c":                              "",
		"\x1b[12":                                                             "",
		"a\x1b]0;cut":                                                         "a",
	} {
		got, used := Filter([]byte(in))
		if string(got) != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
		if rest := in[used:]; rest != "" && !strings.HasPrefix(rest, "\x1b") {
			t.Errorf("%q: %q is kept back", in, rest)
		}
	}
}

// FuzzFilter checks that no sequence passes that the filter would remove, also if the
// output is cut anywhere.
func FuzzFilter(f *testing.F) {
	f.Add("a\x1b]0;t\x1b\\\x1b[6n\x1b[31m", 3)
	f.Add("\x1b\x1b[6n]0;\x1b[c\a", 1)
	f.Add("\x1b[\x1b0", 51)
	f.Fuzz(func(t *testing.T, in string, at int) {
		if !utf8.ValidString(in) || len(in) > 10_000 {
			return
		}
		var out bytes.Buffer
		p := player{w: &out}
		at = min(max(at, 0), len(in))
		for _, part := range []string{in[:at], in[at:]} {
			if err := p.write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		again, used := Filter(out.Bytes())
		if used != out.Len() || !bytes.Equal(again, out.Bytes()) {
			t.Errorf("%q becomes %q, and then %q", in, out.String(), again)
		}
	})
}
