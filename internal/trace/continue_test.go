package trace

import (
	"strings"
	"testing"
)

const (
	theirTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	theirSpan  = "00f067aa0ba902b7"
)

func TestContinue(t *testing.T) {
	var r Recording
	ctx := With(Continue(t.Context(), "00-"+theirTrace+"-"+theirSpan+"-01"), r.Take)
	below, a := Start(ctx, "first")
	_, b := Start(With(Continue(below, "00-"+strings.Repeat("1", 32)+"-"+theirSpan+"-01"), r.Take), "inner")
	b.End(nil)
	a.End(nil)
	spans := r.Spans()
	if spans[1].Trace != theirTrace || spans[1].Parent != theirSpan || spans[0].Trace != theirTrace || spans[0].Parent != spans[1].ID {
		t.Errorf("%+v", spans)
	}
}

// TestContinueUnrecorded has a caller that records nothing of its trace.
func TestContinueUnrecorded(t *testing.T) {
	for _, flags := range []string{"00", "02", "fe"} {
		ctx := With(Continue(t.Context(), "00-"+theirTrace+"-"+theirSpan+"-"+flags), func(Span) { t.Error("it is recorded") })
		ctx, a := Start(ctx, "x")
		a.End(nil)
		if On(ctx) {
			t.Errorf("flags %s: it is on", flags)
		}
	}
}

// TestContinueEnds has a context of a caller who has no trace any more.
func TestContinueEnds(t *testing.T) {
	var r Recording
	ctx := Continue(Continue(t.Context(), "00-"+theirTrace+"-"+theirSpan+"-00"), "")
	_, a := Start(With(ctx, r.Take), "x")
	a.End(nil)
	if s := r.Spans(); len(s) != 1 || s[0].Trace == theirTrace || s[0].Parent != "" {
		t.Errorf("%+v", s)
	}
}

func TestParse(t *testing.T) {
	good := "00-" + theirTrace + "-" + theirSpan + "-01"
	for text, want := range map[string]bool{
		good:                            true,
		"cc" + good[2:]:                 true,
		"cc" + good[2:] + "-of to come": true,
		"":                              false,
		good[1:]:                        false,
		good + "-x":                     false,
		"cc" + good[2:] + "x":           false,
		"ff" + good[2:]:                 false,
		strings.ToUpper(good):           false,
		"00-" + strings.Repeat("0", 32) + "-" + theirSpan + "-01": false,
		"00-" + theirTrace + "-0000000000000000-01":               false,
		"00-" + theirTrace[1:] + "-" + theirSpan + "0-01":         false,
		strings.Replace(good, "4bf9", "4bg9", 1):                  false,
		strings.ReplaceAll(good, "-", "_"):                        false,
		strings.Repeat("-", len(good)):                            false,
		strings.Repeat("é", len(good)):                            false,
		good[:3] + "\r\nX: y" + good[9:]:                          false,
	} {
		if _, ok := parse(text); ok != want {
			t.Errorf("%q: %v", text, ok)
		}
	}
}

// FuzzParse checks that what is taken from a client is nothing but identifiers.
func FuzzParse(f *testing.F) {
	f.Add("00-" + theirTrace + "-" + theirSpan + "-01")
	f.Add("cc-" + theirTrace + "-" + theirSpan + "-01-x")
	f.Add("--")
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := parse(text)
		if ok && (len(c.trace) != 32 || len(c.span) != 16 || strings.Trim(c.trace+c.span, "0123456789abcdef") != "") {
			t.Errorf("%q is taken for %+v", text, c)
		}
	})
}
