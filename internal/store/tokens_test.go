package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestTokensNamed finds tokens by identifier and by name, also those of a store of the
// version before. The search does not grow with the other tokens.
func TestTokensNamed(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0022_token_names", `INSERT INTO tokens (id, name, principal, hash, scopes, created_at)
		VALUES ('tok_a', 'ci', 'token:ci', x'01', 'run', 1), ('tok_b', 'ci', 'token:ci', x'02', 'run', 2), ('tok_c', 'other', 'token:other', x'03', 'run', 3)`)
	s := mustOpen(t, dir)
	for name, want := range map[string][]string{"ci": {"tok_a", "tok_b"}, "tok_c": {"tok_c"}, "none": nil} {
		list, err := s.TokensNamed(t.Context(), name)
		var got []string
		for _, tok := range list {
			got = append(got, tok.ID)
		}
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v, -want +got\n%s", name, err, d)
		}
	}
	for _, of := range searchesOf(t, s, tokensNamedSQL, "ci") {
		if strings.Contains(of, "SCAN") {
			t.Errorf("reads all tokens: %s", of)
		}
	}
}

// TestForgetTokens removes revoked tokens by their age, then by their number.
func TestForgetTokens(t *testing.T) {
	now := time.UnixMicro(1_000_000_000)
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	begun := now
	for n := range 5 {
		id := fmt.Sprintf("tok_%d", n)
		if err := s.PutToken(t.Context(), Token{ID: id, Hash: [32]byte{byte(n)}}); err != nil {
			t.Fatal(err)
		}
		if n > 0 { // the first stays valid
			if err := s.RevokeToken(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(time.Hour)
	}
	for _, step := range []struct {
		before time.Time
		most   int
		want   []string
	}{
		{begun, 10, []string{"tok_0", "tok_1", "tok_2", "tok_3", "tok_4"}},
		{begun.Add(90 * time.Minute), 10, []string{"tok_0", "tok_2", "tok_3", "tok_4"}},
		{begun, 2, []string{"tok_0", "tok_3", "tok_4"}},
		{now, 10, []string{"tok_0"}},
	} {
		if err := s.ForgetTokens(t.Context(), step.before, step.most); err != nil {
			t.Fatal(err)
		}
		list, err := s.ListTokens(t.Context())
		var got []string
		for _, tok := range list {
			got = append(got, tok.ID)
		}
		if d := cmp.Diff(step.want, got); err != nil || d != "" {
			t.Errorf("before %v, most %d: %v, -want +got\n%s", step.before, step.most, err, d)
		}
	}
}

// TestTokenNames has several requests ask for one name at the same time: one gets it, until
// its token is revoked or has expired.
func TestTokenNames(t *testing.T) {
	s, ctx := mustOpen(t, t.TempDir()), t.Context()
	put := func() int {
		const callers = 8
		made := make(chan bool, callers)
		for range callers {
			go func() {
				token := Token{ID: sandbox.NewTokenID(), Name: "ci", Expires: time.Now().Add(time.Hour)}
				copy(token.Hash[:], token.ID)
				err := s.PutToken(ctx, token)
				if err != nil && sandbox.KindOf(err) != sandbox.Conflict {
					t.Error(err)
				}
				made <- err == nil
			}()
		}
		n := 0
		for range callers {
			if <-made {
				n++
			}
		}
		return n
	}
	if n := put(); n != 1 {
		t.Errorf("%d callers got the name, want 1", n)
	}
	if _, err := s.exec(ctx, `UPDATE tokens SET expires_at = 1`); err != nil {
		t.Fatal(err)
	}
	if n := put(); n != 1 {
		t.Errorf("after the end of the token's time %d callers got the name, want 1", n)
	}
	list, err := s.TokensNamed(ctx, "ci")
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := s.RevokeToken(ctx, list[1].ID); err != nil {
		t.Fatal(err)
	}
	if n := put(); n != 1 {
		t.Errorf("after the revocation %d callers got the name, want 1", n)
	}
}
