package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestTokensMigration opens a database of before expiry and rotation, with a token and a
// member of a group.
func TestTokensMigration(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0017_tokens",
		`INSERT INTO tokens VALUES ('tok_1', 'ci', 'token:ci', x'`+hex32+`', 'run files', 1000, 0, 0)`,
		`INSERT INTO group_members VALUES ('team', 'token:ci')`)
	s := mustOpen(t, dir)
	hash := [32]byte{0xab}
	want := Token{ID: "tok_1", Name: "ci", Principal: "token:ci", Hash: hash, Scopes: []string{"run", "files"}, Created: time.UnixMicro(1000).UTC()}
	got, err := s.FindToken(t.Context(), hash)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	// The issuer's claims do not remove what an administrator added.
	if _, _, err := s.ClaimGroups(t.Context(), "token:ci", nil); err != nil {
		t.Fatal(err)
	}
	groups, err := s.Groups(t.Context())
	if diff := cmp.Diff([]Group{{Name: "team", Members: []sandbox.Principal{"token:ci"}}}, groups); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

const hex32 = "ab00000000000000000000000000000000000000000000000000000000000000"

func TestRotateToken(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	s, err := Open(ctx, Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	one, two, three := [32]byte{1}, [32]byte{2}, [32]byte{3}
	if err := s.PutToken(ctx, Token{ID: "tok_1", Name: "ci", Principal: "token:ci", Hash: one, Scopes: []string{"run"}}); err != nil {
		t.Fatal(err)
	}
	rotate := func(old, hash [32]byte) error {
		return s.RotateToken(ctx, "tok_1", old, hash, now.Add(time.Hour), now.Add(24*time.Hour))
	}
	if err := rotate(one, two); err != nil {
		t.Fatal(err)
	}
	if err := rotate(one, three); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a second rotation of the same text: %v", err)
	}
	valid := func(hash [32]byte) bool {
		t.Helper()
		_, err := s.FindToken(ctx, hash)
		if err != nil && !errors.Is(err, sandbox.NotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	if !valid(one) || !valid(two) || valid(three) || valid([32]byte{}) {
		t.Error("both texts must be valid within the grace, and no other")
	}
	now = now.Add(time.Hour)
	if valid(one) || !valid(two) {
		t.Error("only the new text must be valid after the grace")
	}
	now = now.Add(24 * time.Hour)
	if err := s.ForgetTokens(ctx, now.Add(-2*time.Hour), 10); err != nil {
		t.Fatal(err)
	}
	if !valid(two) { // it has expired an hour ago, and is kept to say so
		t.Error("a token that has just expired was removed")
	}
	if err := s.ForgetTokens(ctx, now, 10); err != nil {
		t.Fatal(err)
	}
	if valid(two) {
		t.Error("an expired token was kept")
	}
}

// TestClaimGroups: claims replace claims, and an administrator's choice stays.
func TestClaimGroups(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	const p = sandbox.Principal("oidc:x#ada")
	if err := s.AddMembers(ctx, "kept", []sandbox.Principal{p}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ claims, added, removed, groups []string }{
		{[]string{"eng", "kept"}, []string{"eng", "kept"}, nil, []string{"eng", "kept"}},
		{[]string{"ops"}, []string{"ops"}, []string{"eng"}, []string{"kept", "ops"}},
		{[]string{"ops"}, nil, nil, []string{"kept", "ops"}},
		{nil, nil, []string{"ops"}, []string{"kept"}},
	} {
		added, removed, err := s.ClaimGroups(ctx, p, step.claims)
		if err != nil {
			t.Fatal(err)
		}
		list, err := s.Groups(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var groups []string
		for _, g := range list {
			groups = append(groups, g.Name)
		}
		if diff := cmp.Diff([][]string{step.added, step.removed, step.groups}, [][]string{added, removed, groups}); diff != "" {
			t.Errorf("%v: -want +got\n%s", step.claims, diff)
		}
	}
	// An administrator makes a claimed membership permanent.
	if _, _, err := s.ClaimGroups(ctx, p, []string{"ops"}); err != nil {
		t.Fatal(err)
	}
	if err := s.AddMembers(ctx, "ops", []sandbox.Principal{p}); err != nil {
		t.Fatal(err)
	}
	if _, removed, err := s.ClaimGroups(ctx, p, nil); err != nil || removed != nil {
		t.Errorf("removed %v, %v", removed, err)
	}
	var many []string
	for i := range MaxGroupsOf {
		many = append(many, "g"+string(rune('a'+i)))
	}
	if _, _, err := s.ClaimGroups(ctx, p, many); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("too many groups: %v", err)
	}
}
