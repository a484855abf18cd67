package language

import (
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	names := map[string]string{}
	for _, l := range All() {
		for _, n := range append([]string{l.Name}, l.Aliases...) {
			if by, ok := names[n]; ok || n != strings.ToLower(n) {
				t.Errorf("%s: name %q is not lower-case or is already that of %s", l.Name, n, by)
			}
			names[n] = l.Name
			if got, ok := Find(strings.ToUpper(n)); !ok || got.Name != l.Name {
				t.Errorf("Find(%q) = %s, %v; want %s", n, got.Name, ok, l.Name)
			}
		}
		if l.Context != nil {
			for _, k := range append([]string{l.Name}, l.Context.Others...) {
				if got, ok := OfKernel(k); !ok || got.Name != l.Name || !slices.Contains(Kernels(), k) {
					t.Errorf("OfKernel(%q) = %s, %v; want %s", k, got.Name, ok, l.Name)
				}
			}
			for _, k := range l.Context.Others {
				if got, ok := Find(k); ok {
					t.Errorf("the kernel %s is also a name of %s", k, got.Name)
				}
			}
		}
		if c := l.Context; c != nil && (len(c.Programs) == 0 || c.Nothing == "") {
			t.Errorf("%s: the context is incomplete: %+v", l.Name, c)
		}
	}
	if l, ok := Find(Default); !ok || l.Context == nil || !l.Context.Ahead {
		t.Errorf("the default language is %+v", l)
	}
	if l, ok := Find("cobol"); ok {
		t.Errorf("cobol is %+v", l)
	}
}
