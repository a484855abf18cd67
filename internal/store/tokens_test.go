package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
