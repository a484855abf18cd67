package prepare

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/interpreter"
)

// TestPreparedLanguages are known to have contexts.
func TestPreparedLanguages(t *testing.T) {
	for _, name := range prepared {
		if r, err := interpreter.Runners().Find(name); err != nil || r.Kernel == "" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
