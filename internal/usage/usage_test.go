package usage

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func at(text string) time.Time {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return noon.Add(d)
}

func TestNames(t *testing.T) {
	a := Amounts{}
	for i, p := range a.Values() {
		*p = int64(i + 1)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]int64
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(Names()) {
		t.Errorf("%d amounts, %d names", len(got), len(Names()))
	}
	for i, name := range Names() {
		if got[name] != int64(i+1) {
			t.Errorf("%s is %d, want %d", name, got[name], i+1)
		}
	}
}

func TestPlus(t *testing.T) {
	a := Amounts{CPUMillis: 1, SentBytes: math.MaxInt64 - 1}
	got := a.Plus(Amounts{CPUMillis: 2, SentBytes: 5, Runs: 3})
	if want := (Amounts{CPUMillis: 3, SentBytes: math.MaxInt64, Runs: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if a.CPUMillis != 1 {
		t.Error("Plus changed its receiver")
	}
}

func TestAdvance(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new Counters
		want     Amounts
	}{
		{"Nothing", Counters{BoxCounts: true, BoxCPUMillis: 5, SentBytes: 7}, Counters{}, Amounts{}},
		{"Repeated", Counters{BoxCounts: true, BoxCPUMillis: 5, SentBytes: 7}, Counters{BoxCPUMillis: 5, SentBytes: 7}, Amounts{}},
		{"More", Counters{BoxCounts: true, BoxCPUMillis: 5, ReceivedBytes: 7}, Counters{BoxCPUMillis: 6, ReceivedBytes: 17}, Amounts{CPUMillis: 1, ReceivedBytes: 10}},
		{"RunInBox", Counters{BoxCounts: true, BoxCPUMillis: 5}, Counters{RunCPUMillis: 9}, Amounts{}},
		{"BoxWithoutCount", Counters{RunCPUMillis: 9}, Counters{BoxCPUMillis: 12}, Amounts{}},
		{"Run", Counters{RunCPUMillis: 9}, Counters{RunCPUMillis: 12}, Amounts{CPUMillis: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, got := c.old.Advance(c.new)
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if again, more := next.Advance(c.new); again != next || !more.IsZero() {
				t.Errorf("repeated: %+v, %+v", again, more)
			}
		})
	}
}

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to time.Time
		cpu      int64
		want     []Part
	}{
		{"InOneHour", at("10m"), at("20m"), 7, []Part{{at("0"), Amounts{CPUMillis: 7}}}},
		{"OverTheHour", at("45m"), at("75m"), 9, []Part{{at("0"), Amounts{CPUMillis: 4}}, {at("1h"), Amounts{CPUMillis: 5}}}},
		{"ThreeHours", at("30m"), at("2h30m"), 8, []Part{{at("0"), Amounts{CPUMillis: 2}}, {at("1h"), Amounts{CPUMillis: 4}}, {at("2h"), Amounts{CPUMillis: 2}}}},
		{"ToTheHour", at("30m"), at("1h"), 8, []Part{{at("0"), Amounts{CPUMillis: 8}}}},
		{"Empty", at("30m"), at("30m"), 8, []Part{{at("0"), Amounts{CPUMillis: 8}}}},
		{"Backwards", at("3h"), at("30m"), 8, []Part{{at("0"), Amounts{CPUMillis: 8}}}},
		{"Negative", at("10m"), at("30m"), -8, []Part{{at("0"), Amounts{}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Divide(c.from, c.to, Amounts{CPUMillis: c.cpu})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestExist(t *testing.T) {
	want := []Part{
		{at("0"), Amounts{SandboxMillis: 60_000, MemoryKiBSeconds: 60 * 1024}},
		{at("1h"), Amounts{SandboxMillis: 30_500, MemoryKiBSeconds: 30*1024 + 512}},
	}
	if diff := cmp.Diff(want, Exist(at("59m"), at("60m30s500ms"), 1024)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := Exist(at("1h"), at("1h"), 1024); got != nil {
		t.Errorf("an empty interval has parts %v", got)
	}
	if got := Exist(at("1h"), at("0"), 1024); got != nil {
		t.Errorf("an interval that ends before it begins has parts %v", got)
	}
	if got := Store(at("0"), at("1s"), math.MaxInt64); got[0].StorageKiBSeconds != math.MaxInt64 {
		t.Errorf("a size beyond all bounds gives %v", got)
	}
}

// TestCuts: the sum does not depend on where an interval is cut.
func TestCuts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	sum := func(parts []Part) map[time.Time]Amounts {
		m := map[time.Time]Amounts{}
		for _, p := range parts {
			m[p.Hour] = m[p.Hour].Plus(p.Amounts)
		}
		return m
	}
	for range 300 {
		from := noon.Add(time.Duration(r.IntN(7200_000)) * time.Millisecond)
		to := from.Add(time.Duration(1+r.IntN(5*3600_000)) * time.Millisecond)
		kib := r.Int64N(1 << 30)
		var inner []time.Time
		for range 20 {
			inner = append(inner, from.Add(time.Duration(r.Int64N(int64(to.Sub(from)))).Truncate(time.Millisecond)))
		}
		slices.SortFunc(inner, time.Time.Compare)
		var pieces []Part
		last := from
		for _, t := range append(inner, to) {
			pieces = append(pieces, Exist(last, t, kib)...)
			last = t
		}
		if diff := cmp.Diff(sum(Exist(from, to, kib)), sum(pieces)); diff != "" {
			t.Fatalf("from %v to %v, -whole +pieces\n%s", from, to, diff)
		}
		a := Amounts{CPUMillis: r.Int64N(1 << 40), SentBytes: math.MaxInt64, Runs: 1}
		var total Amounts
		for _, p := range Divide(from, to, a) {
			total = total.Plus(p.Amounts)
		}
		if total != a {
			t.Fatalf("divided from %v to %v: sum %+v, want %+v", from, to, total, a)
		}
	}
}

func TestMaxParts(t *testing.T) {
	parts := Divide(time.UnixMilli(0), noon, Amounts{CPUMillis: 1 << 40})
	var total Amounts
	for _, p := range parts {
		total = total.Plus(p.Amounts)
	}
	if len(parts) > MaxParts || total.CPUMillis != 1<<40 {
		t.Errorf("%d parts with %d ms", len(parts), total.CPUMillis)
	}
}

func TestMerge(t *testing.T) {
	a := []Part{{at("0"), Amounts{Runs: 1}}, {at("2h"), Amounts{Runs: 2}}}
	b := []Part{{at("0"), Amounts{CPUMillis: 3}}, {at("1h"), Amounts{CPUMillis: 4}}}
	want := []Part{{at("0"), Amounts{Runs: 1, CPUMillis: 3}}, {at("1h"), Amounts{CPUMillis: 4}}, {at("2h"), Amounts{Runs: 2}}}
	if diff := cmp.Diff(want, Merge(a, b)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestLabelOf(t *testing.T) {
	labels := map[string]string{"project": "x", "long": strings.Repeat("é", MaxLabel), "bad": "a\xffb"}
	for key, want := range map[string]string{"": "", "project": "x", "none": "", "long": strings.Repeat("é", MaxLabel/2), "bad": "a?b"} {
		if got := LabelOf(labels, key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
