package store

import (
	"errors"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// makeBefore makes the database that a program had which did not know a
// migration, and runs statements in it.
func makeBefore(t *testing.T, dir, migration string, statements ...string) {
	t.Helper()
	db, err := openDB(filepath.Join(dir, FileName), "_txlock=immediate", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`CREATE TABLE migrations (name TEXT PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT`)
	entries, err := migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".sql")
		if name >= migration {
			break
		}
		text, err := migrations.ReadFile(path.Join("migrations", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		exec(string(text))
		exec(`INSERT INTO migrations VALUES (?, 1)`, name)
	}
	for _, s := range statements {
		exec(s)
	}
}

// TestImagesMigration opens databases of before images had principals: if others
// than the local user can have pulled some, engines are to be surveyed.
func TestImagesMigration(t *testing.T) {
	box := func(p string) string {
		return `INSERT INTO sandboxes (id, principal, owner, detached, driver, state, name, image, network, has_env, limits, created_at, used_at)
			VALUES ('sbx', '` + p + `', 'o', 0, 'docker', 'stopped', '', 'evil.example/img', 'none', 0, '{}', 1, 1)`
	}
	for name, c := range map[string]struct {
		data   string
		survey bool
	}{
		"LocalOnly":        {box("local"), false},
		"OthersSandbox":    {box("token:a"), true},
		"OthersWorkspace":  {`INSERT INTO workspaces (id, handle, principal, name, created_at, used_at) VALUES ('i', 'h', 'oidc:x', 'w', 1, 1)`, true},
		"TokenWithoutAUse": {`INSERT INTO tokens (id, name, principal, hash, scopes, created_at, revoked_at) VALUES ('t', 'a', 'token:a', x'00', '', 1, 2)`, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			makeBefore(t, dir, "0006_images", c.data)
			s := mustOpen(t, dir)
			for _, driver := range []string{"docker", "podman", "gvisor"} {
				r, err := s.ImageRecords(t.Context(), driver)
				if err != nil {
					t.Fatal(err)
				}
				want := ImageRecords{Survey: c.survey && driver != "gvisor"}
				if d := cmp.Diff(want, r, cmpopts.EquateEmpty()); d != "" {
					t.Errorf("%s: -want +got\n%s", driver, d)
				}
			}
		})
	}
}

func TestImages(t *testing.T) {
	ctx := t.Context()
	now := time.UnixMicro(1_000_000).UTC()
	s, err := Open(ctx, Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ImageRecords) {
		t.Helper()
		got, err := s.ImageRecords(ctx, "d")
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.SortSlices(func(a, b sandbox.Principal) bool { return a < b })); err != nil || d != "" {
			t.Errorf("%v, -want +got\n%s", err, d)
		}
	}
	type owned = map[string][]sandbox.Principal
	check(ImageRecords{})
	do(s.RecordImages(ctx, "other", "alice", "x"))
	check(ImageRecords{})
	do(s.RecordImages(ctx, "d", OperatorImage, "x", "y"))
	var pulls []ImagePull
	for _, p := range []sandbox.Principal{"alice", "alice", "bob"} {
		id, err := s.BeginImagePull(ctx, "d", "n:1", p)
		do(err)
		pulls = append(pulls, ImagePull{id, "n:1", p, now})
	}
	both := owned{"x": {OperatorImage}, "y": {OperatorImage}}
	check(ImageRecords{Principals: both, Pulls: pulls})
	do(s.EndImagePull(ctx, pulls[2].ID, "", false))
	check(ImageRecords{Principals: both, Pulls: pulls[:2]})
	// A principal's second pull of a name goes on when the first ends.
	do(s.EndImagePull(ctx, pulls[0].ID, "z", true))
	check(ImageRecords{Principals: owned{"x": {OperatorImage}, "y": {OperatorImage}, "z": {OperatorImage, "alice"}}, Pulls: pulls[1:2]})
	do(s.EndImagePull(ctx, pulls[1].ID, "z", false))
	if err := s.EndImagePull(ctx, pulls[1].ID, "y", false); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("a pull that has ended: %v", err)
	}
	check(ImageRecords{Principals: owned{"x": {OperatorImage}, "y": {OperatorImage}, "z": {OperatorImage, "alice"}}})

	// A survey happens once, and takes nothing from those that have a record.
	if _, err := s.write.Exec(`INSERT INTO image_surveys VALUES ('d')`); err != nil {
		t.Fatal(err)
	}
	check(ImageRecords{Principals: owned{"x": {OperatorImage}, "y": {OperatorImage}, "z": {OperatorImage, "alice"}}, Survey: true})
	do(s.SurveyImages(ctx, "d", []string{"x", "u"}))
	do(s.SurveyImages(ctx, "d", []string{"v"}))
	all := owned{"x": {OperatorImage}, "y": {OperatorImage}, "z": {OperatorImage, "alice"}, "u": {UnknownImage}}
	check(ImageRecords{Principals: all})

	// An image that came back after its driver was asked keeps its new record.
	asked := now.Add(time.Second)
	now = now.Add(2 * time.Second)
	do(s.RecordImages(ctx, "d", "bob", "z"))
	do(s.ForgetImages(ctx, "d", []string{"u", "x"}, asked))
	check(ImageRecords{Principals: owned{"x": {OperatorImage}, "u": {UnknownImage}, "z": {"bob"}}})
}
