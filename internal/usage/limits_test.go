package usage

import (
	"errors"
	"maps"
	"math"
	"slices"
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
		"saved-bytes=3GiB":           {LimitSavedBytes, 3 << 30, "3 GiB"},
		"sent-bytes-per-day=10GiB":   {LimitSentBytesDay, 10 << 30, "10 GiB"},
		"memory=64GiB":               {LimitMemory, 64 << 30, "64 GiB"},
		"cpus=1.5":                   {LimitCPUs, 1500, "1.5"},
		"cpus=16":                    {LimitCPUs, 16_000, "16"},
		"workspace-bytes=0GiB":       {LimitWorkspaceBytes, 0, "0 B"},
		"snapshot-bytes=1GiB":        {LimitSnapshotBytes, 1 << 30, "1 GiB"},
		"requests-per-second=20":     {LimitRequests, 20, "20"},
	} {
		l, n, err := ParseLimit(text, gib)
		if err != nil || l != want.limit || n != want.n || l.Format(n) != want.shown {
			t.Errorf("%s: %s %d %q, %v", text, l, n, l.Format(n), err)
		}
	}
	for _, wrong := range []string{"", "cpu", "cpu=1", "sandboxes", "sandboxes=", "sandboxes=-1", "sandboxes=1.5", "cpu-time-per-day=5", "cpu-time-per-day=-5s", "sent-bytes-per-day=-1", "cpus=NaN", "cpus=Inf", "cpus=-1", "cpus=many", "memory=-1", "requests-per-second=0.5"} {
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
	if diff := cmp.Diff(want, Reached([]Account{account}, now, Demand{Action: Create})); diff != "" {
		t.Errorf("a creation: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], Reached([]Account{account}, now, Demand{Action: Run})); diff != "" {
		t.Errorf("a run: -want +got\n%s", diff)
	}
	account.Limits[LimitSavedBytes], account.SavedBytes = 5, 5
	for to, n := range map[Action]int{Create: 2, Run: 1, Save: 1} {
		got := Reached([]Account{account}, now, Demand{Action: to})
		if len(got) != n || (to == Save) != (got[0].Limit == LimitSavedBytes) {
			t.Errorf("action %d: %v", to, got)
		}
	}
	account.SavedBytes = 4
	if got := Reached([]Account{account}, now, Demand{Action: Save}); got != nil {
		t.Errorf("a save below the limit: %v", got)
	}
	group := Account{Group: "team", Limits: map[Limit]int64{LimitCPUMonth: 0, LimitCreations: 3}, Hour: Amounts{Sandboxes: 4}}
	for _, x := range Reached([]Account{group}, now, Demand{Action: Create}) {
		text := map[Limit]string{
			LimitCPUMonth:  "group team's limit cpu-time-per-month is 0s, and 0s is used",
			LimitCreations: "group team's limit creations-per-hour is 3, and 4 is used",
		}[x.Limit]
		if x.String() != text || !x.Free.Equal(year) {
			t.Errorf("%s, free at %v", x, x.Free)
		}
	}
	if got := Reached([]Account{{Live: 1 << 40, Day: Amounts{CPUMillis: 1 << 60}}}, now, Demand{Action: Create}); got != nil {
		t.Errorf("without limits: %v", got)
	}
}

// TestReachedByDemand: a sandbox may use exactly what is left of a sum.
func TestReachedByDemand(t *testing.T) {
	accounts := []Account{
		{Limits: map[Limit]int64{LimitMemory: 8 << 30, LimitCPUs: 4000}, LiveMemory: 6 << 30, LiveCPUs: 3500},
		{Group: "team", Limits: map[Limit]int64{LimitMemory: 7 << 30}, LiveMemory: 6 << 30},
	}
	for _, test := range []struct {
		memory, cpus int64
		want         []string
	}{
		{1 << 30, 500, nil},
		{1 << 30, 501, []string{"your limit cpus is 4, and 3.5 is used; the sandbox asks for 0.501"}},
		{3 << 30, 500, []string{
			"your limit memory is 8 GiB, and 6 GiB is used; the sandbox asks for 3 GiB",
			"group team's limit memory is 7 GiB, and 6 GiB is used; the sandbox asks for 3 GiB",
		}},
		{math.MaxInt64, 0, []string{
			"your limit memory is 8 GiB, and 6 GiB is used; the sandbox asks for " + LimitMemory.Format(math.MaxInt64),
			"group team's limit memory is 7 GiB, and 6 GiB is used; the sandbox asks for " + LimitMemory.Format(math.MaxInt64),
		}},
	} {
		var got []string
		for _, x := range Reached(accounts, time.Now(), Demand{Action: Create, Memory: test.memory, CPUs: test.cpus}) {
			got = append(got, x.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%d bytes, %d thousandths: -want +got\n%s", test.memory, test.cpus, diff)
		}
	}
}

// TestLimitsBoundActions: each limit but that of requests bounds some action.
func TestLimitsBoundActions(t *testing.T) {
	want := map[Action][]Limit{
		Create: {
			LimitSandboxes, LimitMemory, LimitCPUs, LimitCreations, LimitCPUDay, LimitCPUMonth, LimitSandboxDay, LimitSandboxMonth,
			LimitSentBytesDay, LimitSentBytesMonth,
		},
		Run:          {LimitCPUDay, LimitCPUMonth, LimitSandboxDay, LimitSandboxMonth, LimitSentBytesDay, LimitSentBytesMonth},
		Grow:         {LimitWorkspaceBytes},
		TakeSnapshot: {LimitSnapshotBytes},
		Save:         {LimitSavedBytes},
	}
	none := map[Limit]int64{}
	for _, l := range LimitNames() {
		none[l] = 0
	}
	for action, limits := range want {
		got := map[Limit]bool{}
		for _, x := range Reached([]Account{{Limits: none}}, time.Now(), Demand{Action: action}) {
			got[x.Limit] = true
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(limits)), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("action %d: -want +got\n%s", action, diff)
		}
	}
}
