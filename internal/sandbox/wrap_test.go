package sandbox

import (
	"errors"
	"testing"
)

// TestWrapTwice has two layers name the same operation: its text has it once, and the
// kind, the hint and the cause stay.
func TestWrapTwice(t *testing.T) {
	cause := errors.New("cause")
	inner := Wrap(WithHint(Errorf(NotFound, "no file: %w", cause), "look"), "read file", "")
	for _, test := range []struct {
		err  error
		want string
	}{
		{Wrap(inner, "read file", ""), "read file: no file: cause"},
		{Wrap(inner, "read file", "sbx_x"), "read file sbx_x: no file: cause"},
		{Wrap(inner, "copy", ""), "copy: read file: no file: cause"},
		{Wrap(Wrap(inner, "read file", "a"), "read file", "b"), "read file b: read file a: no file: cause"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("the error is %q, want %q", got, test.want)
		}
		if KindOf(test.err) != NotFound || HintOf(test.err) != "look" || !errors.Is(test.err, cause) {
			t.Errorf("%v: kind %s, hint %q", test.err, KindOf(test.err), HintOf(test.err))
		}
	}
	if inner.Error() != "read file: no file: cause" {
		t.Errorf("the wrapped error has become %q", inner)
	}
}
