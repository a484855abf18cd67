package store

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/usage"
)

// TestUsageOfMillion measures glovebox usage over a million runs of 10,000 principals in
// 30 days. Sums are kept when a run ends, so the time depends on the principals and days,
// and not on the runs. It takes a while, so it needs GLOVEBOX_FIGURES.
func TestUsageOfMillion(t *testing.T) {
	if os.Getenv("GLOVEBOX_FIGURES") == "" {
		t.Skip("GLOVEBOX_FIGURES is not set")
	}
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	const principals, days, each = 10_000, 30, 4 // more than a million runs
	today := time.Now().UTC().Truncate(usage.Day)
	_, err := s.write.ExecContext(ctx, fmt.Sprintf(`WITH RECURSIVE p(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM p WHERE n < %d),
		d(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM d WHERE n < %d)
		INSERT INTO usage_days SELECT 'token:' || p.n, %d - d.n * 86400000000, 1, 1000, 1, 10, %d, 100, 0, 0, 0 FROM p, d`,
		principals-1, days-1, micros(today), each))
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]usage.Query{
		"each day":       {From: today.AddDate(0, 0, -30), By: []usage.Column{usage.ByDay}},
		"each principal": {From: today.AddDate(0, 0, -30), By: []usage.Column{usage.ByPrincipal}},
		"each of both":   {From: today.AddDate(0, 0, -30), By: []usage.Column{usage.ByDay, usage.ByPrincipal}},
	} {
		began := time.Now()
		rows, err := s.Usage(ctx, q)
		took := time.Since(began)
		var runs int64
		for _, r := range rows {
			runs += r.Runs
		}
		if err != nil || runs != principals*days*each {
			t.Errorf("%s: %d runs, %v", name, runs, err)
		}
		t.Logf("%s: %d rows in %v", name, len(rows), took)
	}
}
