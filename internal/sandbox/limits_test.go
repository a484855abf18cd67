package sandbox

import (
	"errors"
	"strings"
	"testing"
)

func TestLimitsCheck(t *testing.T) {
	usual := Limits{CPUs: 1, MemoryBytes: 512 << 20, DiskBytes: 1 << 30, Processes: 100, Idle: MinIdle, Lifetime: MinIdle}
	most := Limits{MemoryBytes: 1 << 30}
	for name, c := range map[string]struct {
		change     func(*Limits)
		want, hint string
	}{
		"Usual":     {func(*Limits) {}, "", ""},
		"NoUnit":    {func(l *Limits) { l.MemoryBytes = 128 }, "memory: 128 B is below the minimum, 64 MiB", "in bytes; write it like 128MiB"},
		"FewBytes":  {func(l *Limits) { l.MemoryBytes = 5 }, "memory: 5 B is below the minimum", "write it like 64MiB"},
		"Little":    {func(l *Limits) { l.MemoryBytes = 32 << 20 }, "memory: 32 MiB is below the minimum", ""},
		"Processes": {func(l *Limits) { l.Processes = 0 }, "processes: 0 is below the minimum", ""},
		"Much":      {func(l *Limits) { l.MemoryBytes = 2 << 30 }, "memory: 2 GiB is above the server's maximum, 1 GiB", "ask for less"},
	} {
		l := usual
		c.change(&l)
		err := l.Check(most)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, Invalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(HintOf(err), c.hint) || c.hint == "" && HintOf(err) != "" {
			t.Errorf("%s: %v, with the hint %q", name, err, HintOf(err))
		}
	}
}
