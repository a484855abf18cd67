package usage

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// gib parses a whole number of GiB.
func gib(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, "GiB"), 10, 64)
	return n << 30, err
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]struct {
		limit Limit
		n     int64
		shown string
	}{
		"sandboxes=5":                {LimitSandboxes, 5, "5"},
		"creations-per-hour=0":       {LimitCreations, 0, "0"},
		"cpu-time-per-day=90m":       {LimitCPUDay, 5400_000, "1h30m"},
		"sandbox-time-per-month=48h": {LimitSandboxMonth, 48 * 3600_000, "48h"},
		"sent-bytes-per-day=10GiB":   {LimitSentBytesDay, 10 << 30, "10 GiB"},
	} {
		l, n, err := ParseLimit(text, gib)
		if err != nil || l != want.limit || n != want.n || l.Format(n) != want.shown {
			t.Errorf("%s: %s %d %q, %v", text, l, n, l.Format(n), err)
		}
	}
	for _, wrong := range []string{"", "cpu", "cpu=1", "sandboxes", "sandboxes=", "sandboxes=-1", "sandboxes=1.5", "cpu-time-per-day=5", "cpu-time-per-day=-5s", "sent-bytes-per-day=-1"} {
		if _, _, err := ParseLimit(wrong, gib); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestReached(t *testing.T) {
	now := time.Date(2026, 12, 31, 22, 30, 0, 0, time.FixedZone("", -3600)) // 23:30 in UTC
	account := Account{
		Limits: map[Limit]int64{LimitSandboxes: 2, LimitCreations: 10, LimitCPUDay: 1000, LimitCPUMonth: 5000, LimitSentBytesDay: 7},
		Live:   2, Hour: Amounts{Sandboxes: 9}, Day: Amounts{CPUMillis: 1000, SentBytes: 6}, Month: Amounts{CPUMillis: 4999},
	}
	year := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	want := []Excess{{Limit: LimitCPUDay, Max: 1000, Used: 1000, Free: year}, {Limit: LimitSandboxes, Max: 2, Used: 2}}
	if diff := cmp.Diff(want, Reached([]Account{account}, now, true)); diff != "" {
		t.Errorf("a creation: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], Reached([]Account{account}, now, false)); diff != "" {
		t.Errorf("a run: -want +got\n%s", diff)
	}
	group := Account{Group: "team", Limits: map[Limit]int64{LimitCPUMonth: 0, LimitCreations: 3}, Hour: Amounts{Sandboxes: 4}}
	for _, x := range Reached([]Account{group}, now, true) {
		text := map[Limit]string{
			LimitCPUMonth:  "group team's limit cpu-time-per-month is 0s, and 0s is used",
			LimitCreations: "group team's limit creations-per-hour is 3, and 4 is used",
		}[x.Limit]
		if x.String() != text || !x.Free.Equal(year) {
			t.Errorf("%s, free at %v", x, x.Free)
		}
	}
	if got := Reached([]Account{{Live: 1 << 40, Day: Amounts{CPUMillis: 1 << 60}}}, now, true); got != nil {
		t.Errorf("without limits: %v", got)
	}
}
