package briefmap

import "testing"

func TestMap(t *testing.T) {
	var m Map[string, int]
	m.Delete("a")
	m.Set("a", 1)
	m.Set("b", 2)
	m.Set("a", 3)
	m.Delete("c")
	if len(m) != 2 || m["a"] != 3 || m["b"] != 2 {
		t.Errorf("the map is %v", m)
	}
	m.Delete("a")
	if len(m) != 1 || m == nil {
		t.Errorf("with one entry left: %v", m)
	}
	m.Delete("b")
	if m != nil {
		t.Error("an empty map is kept")
	}
	m.Set("d", 4)
	if m["d"] != 4 {
		t.Errorf("used again, the map is %v", m)
	}
}
