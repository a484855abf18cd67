package store

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// TestLimitsMigration opens a database of before limits, with a live sandbox.
func TestLimitsMigration(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0014_limits", `INSERT INTO sandboxes (id, principal, owner, detached, driver, ref, state, name, image, network, has_env, limits, created_at, used_at)
		VALUES ('live', 'token:a', 'o', 1, 'd', 'r', 'running', '', 'host', 'none', 0, '{}', 1, 1)`)
	s := mustOpen(t, dir)
	if list, err := s.Accounts(t.Context(), "token:a"); err != nil || len(list) > 0 {
		t.Errorf("without limits: %v, %v", list, err)
	}
	if err := s.SetLimits(t.Context(), []AccountLimit{{Principal: AnyPrincipal, Limit: usage.LimitSandboxes, Value: 5}}); err != nil {
		t.Fatal(err)
	}
	want := []usage.Account{{Limits: map[usage.Limit]int64{usage.LimitSandboxes: 5}, Live: 1}}
	got, err := s.Accounts(t.Context(), "token:a")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	if list, err := s.Accounts(t.Context(), sandbox.Local); err != nil || len(list) > 0 {
		t.Errorf("the local principal has limits of any: %v, %v", list, err)
	}
}

// TestAccounts: a group's account has what all members use, and a limit of a principal
// replaces that of any principal.
func TestAccounts(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 11, 26, 12, 30, 0, 0, time.UTC)
	s, err := Open(ctx, Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	used := func(p sandbox.Principal, at time.Time, a usage.Amounts) {
		t.Helper()
		must(s.meter(ctx, func(m *metering) error { return m.count(ctx, p, "", "", usage.Divide(at, at, a)) }))
	}
	used("alice", now, usage.Amounts{CPUMillis: 1, Sandboxes: 1})
	used("alice", now.Add(-time.Hour), usage.Amounts{CPUMillis: 10, Sandboxes: 1, SentBytes: 5})
	used("bob", now.AddDate(0, 0, -20), usage.Amounts{CPUMillis: 100, SandboxMillis: 7})
	used("bob", now.AddDate(0, 0, -30), usage.Amounts{CPUMillis: 1000})
	used("carol", now, usage.Amounts{CPUMillis: 10_000})
	must(s.AddMembers(ctx, "team", []sandbox.Principal{"alice", "bob", "bob"}))
	must(s.SetLimits(ctx, []AccountLimit{
		{Principal: AnyPrincipal, Limit: usage.LimitSandboxes, Value: 5},
		{Principal: AnyPrincipal, Limit: usage.LimitCreations, Value: 6},
		{Principal: "alice", Limit: usage.LimitSandboxes, Value: 7},
		{Group: "team", Limit: usage.LimitCPUMonth, Value: 8},
		{Group: "other", Limit: usage.LimitCPUMonth, Value: 9},
	}))
	check := func(p sandbox.Principal, want ...usage.Account) {
		t.Helper()
		got, err := s.Accounts(ctx, p)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got\n%s", p, err, diff)
		}
	}
	both := usage.Amounts{CPUMillis: 11, SentBytes: 5}
	team := usage.Account{
		Group: "team", Limits: map[usage.Limit]int64{usage.LimitCPUMonth: 8},
		Hour: usage.Amounts{Sandboxes: 1}, Day: both, Month: usage.Amounts{CPUMillis: 111, SandboxMillis: 7, SentBytes: 5},
	}
	check("alice", usage.Account{
		Limits: map[usage.Limit]int64{usage.LimitSandboxes: 7, usage.LimitCreations: 6}, Hour: usage.Amounts{Sandboxes: 1}, Day: both, Month: both,
	}, team)
	month := usage.Amounts{CPUMillis: 100, SandboxMillis: 7}
	check("bob", usage.Account{Limits: map[usage.Limit]int64{usage.LimitSandboxes: 5, usage.LimitCreations: 6}, Month: month}, team)
	if n, err := s.RemoveMembers(ctx, "team", []sandbox.Principal{"bob", "carol"}); err != nil || n != 1 {
		t.Errorf("removed %d, %v", n, err)
	}
	check("bob", usage.Account{Limits: map[usage.Limit]int64{usage.LimitSandboxes: 5, usage.LimitCreations: 6}, Month: month})
	if n, err := s.RemoveLimits(ctx, AccountLimit{Principal: AnyPrincipal}, nil); err != nil || n != 2 {
		t.Errorf("removed %d, %v", n, err)
	}
	check("bob")
	if n, err := s.RemoveMembers(ctx, "team", nil); err != nil || n != 1 {
		t.Errorf("removed %d, %v", n, err)
	}
	limits, err := s.Limits(ctx)
	want := []AccountLimit{{Principal: "alice", Limit: usage.LimitSandboxes, Value: 7}, {Group: "other", Limit: usage.LimitCPUMonth, Value: 9}}
	if diff := cmp.Diff(want, limits); err != nil || diff != "" {
		t.Errorf("limits: %v, -want +got\n%s", err, diff)
	}
	for i := range MaxGroupsOf {
		must(s.AddMembers(ctx, "g"+strconv.Itoa(i), []sandbox.Principal{"dave"}))
	}
	if err := s.AddMembers(ctx, "more", []sandbox.Principal{"dave"}); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("in too many groups: %v", err)
	}
	many := make([]sandbox.Principal, MaxGroupMembers+1)
	for i := range many {
		many[i] = sandbox.Principal("p" + strconv.Itoa(i))
	}
	if err := s.AddMembers(ctx, "crowd", many); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("too many members: %v", err)
	}
	if groups, err := s.Groups(ctx); err != nil || len(groups) != MaxGroupsOf {
		t.Errorf("%d groups, %v", len(groups), err)
	}
}

// TestAccountSums: the sums that limits need are read, and those of other principals and
// of sandboxes that ended do not count.
func TestAccountSums(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.AddMembers(ctx, "team", []sandbox.Principal{"alice", "bob"}))
	sums := []usage.Limit{usage.LimitMemory, usage.LimitCPUs, usage.LimitWorkspaceBytes, usage.LimitSnapshotBytes}
	for _, l := range sums {
		must(s.SetLimits(ctx, []AccountLimit{{Principal: "alice", Limit: l, Value: 1}, {Group: "team", Limit: l, Value: 2}}))
	}
	must(s.SetLimits(ctx, []AccountLimit{{Principal: AnyPrincipal, Limit: usage.LimitRequests, Value: 3}, {Group: "team", Limit: usage.LimitRequests, Value: 4}}))
	for i, p := range []sandbox.Principal{"alice", "alice", "bob", "carol", "alice"} {
		r := testSandbox("me")
		r.Principal, r.Limits.CPUs, r.Limits.MemoryBytes = p, 0.3, 1000
		must(s.InsertSandbox(ctx, r))
		if i == 4 {
			if _, err := s.EndSandbox(ctx, r.ID, "test", s.Now(), sandbox.Verdict{}, Reading{}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		w := Workspace{ID: "w" + strconv.Itoa(i), Handle: "h" + strconv.Itoa(i), Principal: p}
		w.Name, w.Created, w.Used = w.ID, s.Now(), s.Now()
		must(s.UseWorkspace(ctx, w, 10, func() error { return nil }))
		must(s.TouchWorkspace(ctx, w.ID, s.Now(), &sandbox.WorkspaceUsage{Bytes: 50}))
		snap := Snapshot{Snapshot: sandbox.Snapshot{ID: sandbox.NewSnapshotID(), State: sandbox.SnapshotMaking, Sandbox: r.ID, Created: s.Now()}, Principal: p, Owner: "me", Driver: "fake", Reserved: 7}
		must(s.AddSnapshot(ctx, &snap, 10, 1<<40))
	}
	read := func(a usage.Account) (n []int64) {
		for _, l := range sums {
			n = append(n, a.Use(l))
		}
		return n
	}
	for p, want := range map[sandbox.Principal][][]int64{
		"alice": {{2000, 600, 100, 14}, {3000, 900, 150, 21}},
		"bob":   {{0, 0, 0, 0}, {3000, 900, 150, 21}}, // without an own limit on them
	} {
		accounts, err := s.Accounts(ctx, p)
		var got [][]int64
		for _, a := range accounts {
			got = append(got, read(a))
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got\n%s", p, err, diff)
		}
	}
	rates, err := s.RequestRates(ctx, "bob")
	if diff := cmp.Diff([]usage.Rate{{PerSecond: 3}, {Group: "team", PerSecond: 4}}, rates); err != nil || diff != "" {
		t.Errorf("rates: %v, -want +got\n%s", err, diff)
	}
}

// searchesOf returns SQLite's plan of a query. It names the columns that bound a search.
func searchesOf(t *testing.T, s *Store, query string, args ...any) []string {
	t.Helper()
	rows, err := s.read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var searches []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(detail, "SCAN") || strings.Contains(detail, "SEARCH") {
			searches = append(searches, detail)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return searches
}

// TestAccountsReadTheirRows: what a check of limits reads does not grow with the other
// accounts.
func TestAccountsReadTheirRows(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	searches := searchesOf(t, s, limitsOfSQL, "alice")
	for _, of := range searches {
		if !strings.Contains(of, "account=?") && !strings.Contains(of, "(principal=?") {
			t.Errorf("reads more than the rows of an account: %s", of)
		}
	}
	if len(searches) != 3 {
		t.Errorf("%d searches, want those of the own limits, memberships and limits of groups: %q", len(searches), searches)
	}
}

// TestAdmitSandbox: of several processes that make sandboxes at the same time, no more
// succeed than the limit allows.
func TestAdmitSandbox(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	stores := []*Store{mustOpen(t, dir), mustOpen(t, dir)}
	if err := stores[0].SetLimits(ctx, []AccountLimit{{Principal: sandbox.Local, Limit: usage.LimitSandboxes, Value: 3}}); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	var wg sync.WaitGroup
	errs := make([]error, 10)
	for i := range errs {
		wg.Go(func() {
			errs[i] = stores[i%2].AdmitSandbox(ctx, testSandbox("me"), func(list []usage.Account) error {
				if len(usage.Reached(list, time.Now(), usage.Demand{Action: usage.Create})) > 0 {
					return full
				}
				return nil
			})
		})
	}
	wg.Wait()
	admitted := 0
	for _, err := range errs {
		if err == nil {
			admitted++
		} else if !errors.Is(err, full) {
			t.Error(err)
		}
	}
	live, err := stores[1].LiveSandboxes(ctx)
	if err != nil || admitted != 3 || len(live) != 3 {
		t.Errorf("%d admitted, %d live, %v; want 3", admitted, len(live), err)
	}
}
