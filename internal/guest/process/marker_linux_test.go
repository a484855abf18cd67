package process

import (
	"strings"
	"testing"
)

func TestMarkers(t *testing.T) {
	m, err := newMarkers()
	if err != nil {
		t.Fatal(err)
	}
	other, err := newMarkers()
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := m.id(m.of(42)); !ok || id != 42 {
		t.Errorf("own marker is of %d, %v", id, ok)
	}
	for _, bad := range []string{"", "42", "42.", other.of(42), "1" + m.of(42), m.of(42) + "0", strings.ToUpper(m.of(42))} {
		if id, ok := m.id(bad); ok {
			t.Errorf("%q is taken for that of %d", bad, id)
		}
	}
}
