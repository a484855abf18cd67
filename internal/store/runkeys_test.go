package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// keyOf returns a key of a run, and the fingerprint of a request.
func keyOf(name string, request byte) sandbox.RunKey {
	var k sandbox.RunKey
	copy(k.Hash[:], name)
	k.Request[0] = request
	return k
}

func TestRunKeys(t *testing.T) {
	now := time.UnixMicro(1_000_000)
	dir := t.TempDir()
	open := func() *Store {
		t.Helper()
		s, err := Open(t.Context(), Options{Dir: dir, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open()
	box := Sandbox{Principal: "token:a"}
	box.ID, box.State = "sbx", sandbox.Running
	if err := s.InsertSandbox(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	insert := func(id string, p sandbox.Principal, key sandbox.RunKey) error {
		r := Run{Principal: p, Key: &key}
		r.ID, r.SandboxID, r.Started = id, "sbx", now
		return s.InsertRun(t.Context(), r)
	}
	check := func(when string, p sandbox.Principal, key sandbox.RunKey, want string) {
		t.Helper()
		id, err := s.KeyedRun(t.Context(), p, key)
		if err != nil {
			id = string(sandbox.KindOf(err))
		}
		if id != want {
			t.Errorf("%s: the key finds %q, want %q", when, id, want)
		}
	}
	check("at first", "token:a", keyOf("k", 1), "not_found")
	if err := insert("run1", "token:a", keyOf("k", 1)); err != nil {
		t.Fatal(err)
	}
	if err := insert("run2", "token:a", keyOf("k", 1)); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a second run with the key: %v", err)
	}
	if _, err := s.Run(t.Context(), "run2"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("the record of the second run: %v", err)
	}
	s = open() // another process, or a later one
	check("the same request", "token:a", keyOf("k", 1), "run1")
	check("another request", "token:a", keyOf("k", 2), "conflict")
	check("another principal", "token:b", keyOf("k", 1), "not_found")

	// The key of a run that did not begin is free. That of a run that ended is not.
	if err := s.DeleteRun(t.Context(), "run1"); err != nil {
		t.Fatal(err)
	}
	check("after a failed start", "token:a", keyOf("k", 1), "not_found")
	if err := insert("run3", "token:a", keyOf("k", 1)); err != nil {
		t.Fatal(err)
	}
	ended := Run{}
	ended.ID, ended.Ended, ended.Verdict.Code = "run3", now, sandbox.OK
	if _, err := s.FinishRun(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRun(t.Context(), "run3"); err != nil {
		t.Fatal(err)
	}
	check("after the record was removed", "token:a", keyOf("k", 1), "run3")

	now = now.Add(59 * time.Minute)
	check("within the hour", "token:a", keyOf("k", 1), "run3")
	now = now.Add(59 * time.Minute)
	check("within an hour after that", "token:a", keyOf("k", 1), "run3")
	now = now.Add(time.Hour)
	check("after the hour", "token:a", keyOf("k", 1), "not_found")
	if err := s.ForgetKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := keys(t, s); n != 0 {
		t.Errorf("%d keys stay", n)
	}
}

func keys(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.read.QueryRowContext(t.Context(), `SELECT count(*) FROM run_keys`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRunKeysAreBounded(t *testing.T) {
	now := time.UnixMicro(1_000_000)
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	box := Sandbox{Principal: "token:a"}
	box.ID, box.State = "sbx", sandbox.Running
	if err := s.InsertSandbox(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	n := 0
	insert := func(p sandbox.Principal, key string) {
		t.Helper()
		n++
		k := keyOf(key, 1)
		r := Run{Principal: p, Key: &k}
		r.ID, r.SandboxID, r.Started = fmt.Sprint("run", n), "sbx", now
		if err := s.InsertRun(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	find := func(p sandbox.Principal, key string) bool {
		_, err := s.KeyedRun(t.Context(), p, keyOf(key, 1))
		return err == nil
	}
	insert("token:small", "mine")
	for i := range mostKeys {
		now = now.Add(time.Microsecond)
		insert("token:a", fmt.Sprint(i))
	}
	now = now.Add(time.Second)
	if !find("token:a", "0") { // used now
		t.Error("the first key is forgotten too early")
	}
	insert("token:a", "new")
	if find("token:a", "1") || !find("token:a", "0") || !find("token:a", "new") {
		t.Error("the key of the longest unused is not the one that is forgotten")
	}
	const fill = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
		INSERT INTO run_keys SELECT 'token:' || (i / 200), CAST(i AS BLOB), zeroblob(32), 'run', ? FROM n`
	if _, err := s.write.ExecContext(t.Context(), fill, mostOfAll-keys(t, s), micros(now.Add(keepKey))); err != nil {
		t.Fatal(err)
	}
	insert("token:last", "new")
	if got := keys(t, s); got != mostOfAll || !find("token:last", "new") || !find("token:small", "mine") {
		t.Errorf("%d keys, want %d, and those of the small principals", got, mostOfAll)
	}
}

// TestRunKeysMigration opens a database of the version before, with a run in it.
func TestRunKeysMigration(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0010_runkeys",
		`INSERT INTO sandboxes (id, principal, owner, detached, driver, state, name, image, network, has_env, limits, created_at, used_at)
			VALUES ('sbx', 'token:a', 'o', 0, 'gvisor', 'running', '', 'host', 'none', 0, '{}', 1, 1)`,
		`INSERT INTO runs (id, sandbox_id, principal, started_at, timeout, terminal, keeps_stdin) VALUES ('run', 'sbx', 'token:a', 1, 1, 0, 0)`)
	s := mustOpen(t, dir)
	if _, err := s.KeyedRun(t.Context(), "token:a", keyOf("k", 1)); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("a key of before: %v", err)
	}
	key := keyOf("k", 1)
	r := Run{Principal: "token:a", Key: &key}
	r.ID, r.SandboxID, r.Started = "run2", "sbx", time.UnixMicro(2)
	if err := s.InsertRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if id, err := s.KeyedRun(t.Context(), "token:a", key); id != "run2" || err != nil {
		t.Errorf("a key of now: %q, %v", id, err)
	}
	if err := s.DeleteRun(t.Context(), "run"); err != nil {
		t.Error(err)
	}
}
