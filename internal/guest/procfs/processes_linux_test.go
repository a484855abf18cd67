package procfs

import (
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	const good = "12 (a) b) R 3 4 5 6 0 0 0 0 0 0 0 0 0 0 20 0 7 0 99 0 0"
	p, ok := parseStat(12, []byte(good))
	if want := (Process{PID: 12, PPID: 3, SID: 5, TTY: 6, State: 'R', Threads: 7, Start: 99}); !ok || p != want {
		t.Errorf("got %+v, %v, want %+v", p, ok, want)
	}
	for _, bad := range []string{"", "12 (a", "12 (a) R 3", strings.Replace(good, " 3 ", " x ", 1)} {
		if p, ok := parseStat(12, []byte(bad)); ok {
			t.Errorf("%q is taken for %+v", bad, p)
		}
	}
}
