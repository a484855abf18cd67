package prepare

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/language"
)

// TestPreparedLanguages are known to have contexts, and the default is the first.
func TestPreparedLanguages(t *testing.T) {
	var prepared []string
	for _, l := range language.WithContexts() {
		if !l.Context.Ahead {
			continue
		}
		prepared = append(prepared, l.Name)
		if r, err := interpreter.Runners().Find(l.Name); err != nil || r.Kernel == "" {
			t.Errorf("%s: %+v, %v", l.Name, r, err)
		}
	}
	if len(prepared) == 0 || prepared[0] != language.Default {
		t.Errorf("prepared are %q; want %s first", prepared, language.Default)
	}
}
