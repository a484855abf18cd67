package glob

import (
	"strings"
	"testing"
)

// TestHostileClasses matches classes whose signs begin names of classes and do not
// end them. A search for each end takes the square of the pattern's length: minutes
// here, beyond the test's time.
func TestHostileClasses(t *testing.T) {
	for _, part := range []string{"a", "[:", "[:alpha", ":]"} {
		pattern := "*[" + strings.Repeat(part, 200_000)
		if _, ok := matchClass(pattern[1:], 'x'); ok {
			t.Errorf("an open class of %q matches", part)
		}
	}
	if _, ok := ParseRule("*[" + strings.Repeat("a", maxLine)); ok {
		t.Error("a line that is longer than any path is a rule")
	}
	if rules, whole := ParseRules("a/b\n"+strings.Repeat("x/", maxLine)+"\nc", 10); len(rules) != 2 || !whole {
		t.Errorf("%d rules, %v", len(rules), whole)
	}
}
