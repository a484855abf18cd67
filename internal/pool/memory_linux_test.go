package pool

import "testing"

func TestRoomInMachine(t *testing.T) {
	for _, c := range []struct {
		text string
		size int64
		want bool
	}{
		{"MemTotal: 10000 kB\nMemFree: 1 kB\nMemAvailable: 3000 kB\n", 2000 << 10, true},
		{"MemTotal: 10000 kB\nMemFree: 1 kB\nMemAvailable: 3000 kB\n", 2001 << 10, false},
		{"MemTotal: 10000 kB\nMemAvailable: 999 kB\n", 0, false},
		{"", 1 << 60, true},
		{"MemTotal: x\nbad\nMemAvailable: 1 kB\n", 1 << 60, true},
	} {
		if got := roomIn([]byte(c.text), c.size); got != c.want {
			t.Errorf("%q has room for %d: %v", c.text, c.size, got)
		}
	}
}
