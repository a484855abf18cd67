package procfs

import "testing"

func TestMeminfo(t *testing.T) {
	m := ParseMeminfo([]byte("MemTotal:         524288 kB\nMemAvailable:   511372 kB\nbad\nHugePages: x\n"))
	if m["MemTotal"] != 512<<20 || m["MemAvailable"] != 511372<<10 || len(m) != 2 {
		t.Errorf("read %v", m)
	}
}
