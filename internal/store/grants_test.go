package store

import (
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestGrantMigration opens a database of the version before, which has a token, and
// gives it a grant. The grant ends with the token.
func TestGrantMigration(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0009_signin",
		`INSERT INTO tokens (id, name, principal, hash, scopes, created_at) VALUES ('tok_1', 'ada', 'token:ada', zeroblob(32), 'run', 1)`)
	s := mustOpen(t, dir)
	if list, err := s.Grants(t.Context()); err != nil || len(list) != 0 {
		t.Fatalf("the grants are %+v, %v", list, err)
	}
	later := time.Now().Add(time.Hour)
	token := sandbox.GrantToken{Hash: [32]byte{1}, Expires: later}
	g := sandbox.Grant{ID: "grt_1", TokenID: "tok_1", ClientID: "cli_1", Scopes: []string{"run"}, Created: time.Now(), Expires: later}
	if err := s.PutGrant(t.Context(), g, 10, token); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.GrantToken(t.Context(), token.Hash, false); err != nil || got.Principal != "token:ada" {
		t.Errorf("the grant is %+v, %v", got, err)
	}
	if err := s.RevokeToken(t.Context(), "tok_1"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.GrantToken(t.Context(), token.Hash, false); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("the access token of a revoked token: %v", err)
	}
	if err := s.ForgetTokens(t.Context(), later.Add(time.Hour), 0); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"oauth_grants", "oauth_tokens"} {
		var n int
		if err := s.read.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s has %d rows, %v", table, n, err)
		}
	}
}
