package screen

import (
	"bytes"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// aSixel is a picture of 3 by 7 pixels in two colours.
const aSixel = "\x1bP0;0;8q\"1;1;3;7#0;2;100;100;100#1;2;0;0;0#0!3~$#1?@?-#0!3@\x1b\\"

// TestHostileSixels has the sandbox send something else to the terminal.
func TestHostileSixels(t *testing.T) {
	with := func(old, new string) string {
		if !strings.Contains(aSixel, old) {
			t.Fatalf("the sixels have no %q", old)
		}
		return strings.Replace(aSixel, old, new, 1)
	}
	const side = "1568"
	for name, c := range map[string]struct {
		data string
		want bool
	}{
		"Picture":     {aSixel, true},
		"NoIntro":     {with("0;0;8q", "q"), true},
		"Largest":     {"\x1bPq\"1;1;" + side + ";" + side + "#255!" + side + "~\x1b\\", true},
		"Empty":       {"", false},
		"Text":        {"hello", false},
		"TextBefore":  {"x" + aSixel, false},
		"TextAfter":   {aSixel + "x", false},
		"TwoPictures": {aSixel + aSixel, false},
		"NoEnd":       {strings.TrimSuffix(aSixel, "\x1b\\"), false},
		"HalfAnEnd":   {strings.TrimSuffix(aSixel, "\\"), false},
		"EndOfC1":     {strings.TrimSuffix(aSixel, "\x1b\\") + "\x9c", false},
		"StartOfC1":   {strings.Replace(aSixel, "\x1bP", "\x90", 1), false},
		"EndInside":   {with("$", "\x1b\\\x1b]52;c;AAAA\a"), false},
		"Escape":      {with("$", "\x1b[2J"), false},
		"Cancel":      {with("$", "\x18"), false},
		"Bell":        {with("$", "\a"), false},
		"LineBreak":   {with("$", "\n"), false},
		"C1":          {with("$", "\x9b2J"), false},
		"UTF8":        {with("$", "é"), false},
		"NUL":         {with("$", "\x00"), false},
		"Delete":      {with("$", "\x7f"), false},
		"Space":       {with("$", " "), false},
		"Letter":      {with("?@?", "}|z"), true}, // they are sixels
		"OtherDCS":    {with("q", "$q"), false},
		"Tmux":        {with("0;0;8q", "tmux;"), false},
		"ManyIntros":  {with("0;0;8q", "0;0;8;1q"), false},
		"NoSize":      {with("\"1;1;3;7", ""), false},
		"SizeTwice":   {with("$", "\"1;1;9999;9999"), false},
		"Wide":        {with("1;1;3;7", "1;1;1569;7"), false},
		"High":        {with("1;1;3;7", "1;1;3;1569"), false},
		"Nothing":     {with("1;1;3;7", "1;1;0;0"), false},
		"BeyondWidth": {with("!3~", "!4~"), false},
		"LongRepeat":  {with("!3~", "!99999999999999999999~"), false},
		"NoRepeat":    {with("!3~", "!~"), false},
		"RepeatOfEnd": {"\x1bPq\"1;1;3;7!3\x1b\\", false},
		"RepeatColor": {with("!3~", "!3#"), false},
		"BeyondRows":  {with("-#0!3@", "--#0!3@"), false},
		"EmptyRows":   {with("-#0!3@", strings.Repeat("-", 1000)), false},
		"Colour256":   {with("#1;2", "#256;2"), false},
		"HLS":         {with("#1;2", "#1;1"), false},
		"Bright":      {with("#1;2;0", "#1;2;101"), false},
		"HalfColour":  {with("#1;2;0;0;0", "#1;2;0"), false},
		"LongColour":  {with("#1;2;0;0;0", "#1;2;0;0;0;0"), false},
		"Large":       {"\x1bPq\"1;1;3;7" + strings.Repeat("$", sandbox.MaxSixel) + "\x1b\\", false},
	} {
		if got := validSixel([]byte(c.data)); got != c.want {
			t.Errorf("%s: %v for %.60q", name, got, c.data)
		}
		var out bytes.Buffer
		shown, err := showSixel(&out, Picture{MIME: "image/png", Sixel: []byte(c.data)})
		if err != nil || shown != c.want || shown && out.String() != c.data+"\n" || !shown && out.Len() > 0 {
			t.Errorf("%s: %v, %v, %.60q", name, shown, err, out.String())
		}
	}
}

// FuzzSixel has no other control character reach a terminal.
func FuzzSixel(f *testing.F) {
	f.Add([]byte(aSixel))
	f.Add([]byte("\x1bPq\"1;1;1;1\x1b\\"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !validSixel(data) {
			return
		}
		inside := bytes.TrimSuffix(bytes.TrimPrefix(data, []byte("\x1bP")), []byte("\x1b\\"))
		for _, c := range inside {
			if c <= ' ' || c > '~' {
				t.Fatalf("%q has %q", data, c)
			}
		}
	})
}

func TestProtocol(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want protocol
	}{
		{map[string]string{"TERM": "xterm-256color"}, none},
		{map[string]string{"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, inline},
		{map[string]string{"TERM": "foot"}, sixel},
		{map[string]string{"TERM": "foot-extra"}, sixel},
		{map[string]string{"TERM": "footage"}, none},
		{map[string]string{"TERM": "mlterm-256color"}, sixel},
		{map[string]string{"TERM": "xterm", "MLTERM": "3.9.3"}, sixel},
		{map[string]string{"TERM": "contour-latest"}, sixel},
		{map[string]string{"TERM": "xterm-256color", "KONSOLE_VERSION": "220400"}, sixel},
		{map[string]string{"TERM": "xterm-256color", "KONSOLE_VERSION": "211203"}, none},
		{map[string]string{"TERM": "xterm-256color", "KONSOLE_VERSION": "new"}, none},
		{map[string]string{"TERM": "tmux-256color", "KONSOLE_VERSION": "220400"}, none},
		{map[string]string{"TERM": "screen.foot", "TMUX": "x"}, none},
		{map[string]string{"TERM": "xterm", EnvProtocol: "sixel"}, sixel},
		{map[string]string{"TERM": "tmux-256color", EnvProtocol: "sixel"}, sixel},
		{map[string]string{"TERM": "foot", EnvProtocol: "none"}, none},
		{map[string]string{"TERM": "foot", EnvProtocol: "iterm2"}, inline},
		{map[string]string{"TERM": "xterm", EnvProtocol: "kitty"}, kitty},
		{map[string]string{"TERM": "foot", EnvProtocol: "yes"}, sixel},
	} {
		if got := protocolOf(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %s, want %s", c.env, got, c.want)
		}
	}
}
