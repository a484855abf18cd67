package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// useOf adds the same amounts to the hours and days of principals.
func useOf(t *testing.T, s *Store, principals []sandbox.Principal, hours []time.Time) {
	t.Helper()
	err := s.meter(t.Context(), func(m *metering) error {
		for _, h := range hours {
			for i, p := range principals {
				a := usage.Amounts{Runs: int64(i + 1), CPUMillis: 10}
				if err := m.count(t.Context(), p, "w", "l", []usage.Part{{Hour: h, Amounts: a}}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUsageOrder checks that a query returns the same rows with and without a limit, and
// for all principals and a list of them, because the statements differ.
func TestUsageOrder(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	principals := []sandbox.Principal{"b", "a", "", "ä", "token:x"}
	useOf(t, s, principals, []time.Time{day.Add(47 * time.Hour), day.Add(time.Hour), day.Add(2 * time.Hour), day.Add(-time.Hour)})
	for _, by := range [][]usage.Column{
		nil, {usage.ByDay}, {usage.ByHour}, {usage.ByPrincipal}, {usage.ByDay, usage.ByPrincipal}, {usage.ByPrincipal, usage.ByHour},
		{usage.ByDay, usage.ByWorkspace}, {usage.ByLabel, usage.ByPrincipal},
	} {
		q := usage.Query{From: day, To: day.AddDate(0, 0, 2), By: by}
		want, err := s.Usage(t.Context(), q)
		var runs int64
		for _, r := range want {
			runs += r.Runs
		}
		if err != nil || runs != 3*(1+2+3+4+5) {
			t.Errorf("%v: %d runs, %v", by, runs, err)
		}
		limited, listed := q, q
		limited.Limit, listed.Principals = 1000, principals
		for name, q := range map[string]usage.Query{"with a limit": limited, "of a list": listed} {
			got, err := s.Usage(t.Context(), q)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v %s: %v, -want +got\n%s", by, name, err, diff)
			}
		}
		limited.Limit = 1
		if got, err := s.Usage(t.Context(), limited); err != nil || len(got) != 1 || got[0] != want[0] {
			t.Errorf("%v: the first row is %v, %v", by, got, err)
		}
		q.From, q.To = q.To, time.Time{}
		if got, err := s.Usage(t.Context(), q); err != nil || len(got) != 0 {
			t.Errorf("%v: after the end: %v, %v", by, got, err)
		}
	}
}

// TestUsagePlan checks how SQLite reads the sums: a report by day reads those of days,
// and no report without a limit searches for each row by its time.
func TestUsagePlan(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		by    []usage.Column
		table string
	}{
		{nil, "day"},
		{[]usage.Column{usage.ByDay}, "day"},
		{[]usage.Column{usage.ByPrincipal}, "day"},
		{[]usage.Column{usage.ByDay, usage.ByPrincipal}, "day"},
		{[]usage.Column{usage.ByHour, usage.ByPrincipal}, "hour"},
		{[]usage.Column{usage.ByDay, usage.ByLabel}, "hour"},
	} {
		text, args := usageSQL(usage.Query{From: day, To: day.AddDate(0, 0, 1), By: c.by})
		var plan []string
		err := collect(t.Context(), s.read, "EXPLAIN QUERY PLAN "+text, args, func(scan scanFunc) error {
			var id, parent, unused int
			var detail string
			err := scan(&id, &parent, &unused, &detail)
			plan = append(plan, detail)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(plan, "\n")
		if want := fmt.Sprintf("SEARCH u USING PRIMARY KEY (principal=? AND %[1]s>? AND %[1]s<?)", c.table); !strings.Contains(all, want) {
			t.Errorf("%v: the plan is without %q:\n%s", c.by, want, all)
		}
		if strings.Contains(all, "SCAN u") || strings.Contains(all, "SCAN usage_") || strings.Contains(all, "USING INDEX") {
			t.Errorf("%v: the plan reads a whole table or searches for each row:\n%s", c.by, all)
		}
	}
}
