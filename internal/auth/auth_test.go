package auth_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestNewToken(t *testing.T) {
	a, b := auth.NewToken(sandbox.Shard{}), auth.NewToken(sandbox.Shard{})
	if a == b {
		t.Errorf("two tokens are the same: %s", a)
	}
	for _, tok := range []string{a, b} {
		if !strings.HasPrefix(tok, "gbx_") || len(tok) < 40 {
			t.Errorf("token %q: want gbx_ and at least 36 characters", tok)
		}
	}
}

func TestVerify(t *testing.T) {
	ctx := t.Context()
	store := newStore()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	a, err := auth.New(auth.Options{Tokens: store, Static: "from-the-environment", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	text, tok, err := a.Create(ctx, "ci", auth.ScopeRun)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(store.dump(), text) {
		t.Error("the store holds the token's text")
	}

	id, err := a.Verify(ctx, text)
	if err != nil {
		t.Fatalf("Verify(created): %v", err)
	}
	if id.Principal != "token:ci" || !id.Can(auth.ScopeRun) || id.Can(auth.ScopeFiles) || id.Can(auth.ScopeAdmin) {
		t.Errorf("Verify(created) = %+v, want token:ci with run only", id)
	}
	static, err := a.Verify(ctx, "from-the-environment")
	if err != nil {
		t.Fatalf("Verify(static): %v", err)
	}
	if static.Principal == id.Principal || !static.Can(auth.ScopeAdmin) {
		t.Errorf("Verify(static) = %+v, want another principal with every scope", static)
	}
	for _, wrong := range []string{"", "gbx_", text + "x", text[:len(text)-1], strings.ToUpper(text), "from-the-environmenT", auth.NewToken(sandbox.Shard{})} {
		if _, err := a.Verify(ctx, wrong); !errors.Is(err, sandbox.Unauthenticated) {
			t.Errorf("Verify(%q): error %v, want unauthenticated", wrong, err)
		} else if !strings.Contains(sandbox.HintOf(err), "glovebox token create") {
			t.Errorf("Verify(%q): the hint %q does not say how to get a token", wrong, sandbox.HintOf(err))
		} else if wrong != "" && strings.Contains(err.Error(), wrong) {
			t.Errorf("Verify(%q): the error repeats the token: %v", wrong, err)
		}
	}

	if _, err := a.Revoke(ctx, "nothing"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Revoke of no token: error %v, want not found", err)
	}
	for _, name := range []string{"ci", "ci", tok.ID} { // once more has no effect
		if got, err := a.Revoke(ctx, name); err != nil || got.ID != tok.ID {
			t.Fatalf("Revoke(%q) = %+v, %v; want the token %s", name, got, err, tok.ID)
		}
	}
	if list, err := a.List(ctx); err != nil || len(list) != 1 || list[0].ID != tok.ID || list[0].Revoked.IsZero() {
		t.Errorf("List = %+v, %v; want the one token, revoked", list, err)
	}
	if _, err := a.Verify(ctx, text); !errors.Is(err, sandbox.Unauthenticated) {
		t.Errorf("Verify(revoked): error %v, want unauthenticated", err)
	}
	again, _, err := a.Create(ctx, "ci", auth.ScopeFiles)
	if err != nil {
		t.Fatalf("a revoked token's name cannot be used again: %v", err)
	}
	if id2, err := a.Verify(ctx, again); err != nil || id2.Principal != id.Principal {
		t.Errorf("a new token of the same name is %+v, %v; want principal %s", id2, err, id.Principal)
	}
}

func TestVerifyStoreFails(t *testing.T) {
	store := newStore()
	store.err = errors.New("disk on fire")
	a, err := auth.New(auth.Options{Tokens: store})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Verify(t.Context(), auth.NewToken(sandbox.Shard{})); sandbox.KindOf(err) != sandbox.Internal {
		t.Errorf("Verify with a broken store: %v, want an internal error, not a refusal", err)
	}
}

func TestTouch(t *testing.T) {
	ctx := t.Context()
	store := newStore()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	a, err := auth.New(auth.Options{Tokens: store, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := a.Create(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := a.Verify(ctx, text); err != nil {
			t.Fatal(err)
		}
		now = now.Add(20 * time.Second)
	}
	if store.touches != 4 {
		t.Errorf("ten uses in three minutes wrote %d times, want 4", store.touches)
	}
}

func TestCreateInvalid(t *testing.T) {
	ctx := t.Context()
	a, err := auth.New(auth.Options{Tokens: newStore()})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a b", "-x", "a\x00b", strings.Repeat("a", 65)} {
		if _, _, err := a.Create(ctx, name); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("Create(%q): error %v, want invalid", name, err)
		}
	}
	if _, _, err := a.Create(ctx, "x", "everything"); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("Create with an unknown scope: error %v, want invalid", err)
	}
	if _, _, err := a.Create(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Create(ctx, "x"); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("Create of a name in force: error %v, want conflict", err)
	}
	if _, err := auth.New(auth.Options{Static: "short"}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("New with a short static token: error %v, want invalid", err)
	}
}

func TestIdentity(t *testing.T) {
	if _, ok := auth.FromContext(t.Context()); ok {
		t.Error("an identity in an empty context")
	}
	id := auth.Identity{Principal: "p", Scopes: []auth.Scope{auth.ScopeRun, auth.ScopeFiles}}
	got, ok := auth.FromContext(auth.NewContext(t.Context(), id))
	if !ok || got.Key() != id.Key() {
		t.Errorf("FromContext = %+v, %v; want %+v", got, ok, id)
	}
	same := auth.Identity{Principal: "p", Scopes: []auth.Scope{auth.ScopeFiles, auth.ScopeRun}}
	if same.Key() != id.Key() {
		t.Error("the order of scopes changes the key")
	}
	same.Expires = time.Now()
	if same.Key() != id.Key() {
		t.Error("a renewed token changes the key")
	}
	for _, other := range []auth.Identity{
		{Principal: "q", Scopes: id.Scopes},
		{Principal: "p", Scopes: id.Scopes[:1]},
		auth.Local(),
	} {
		if other.Key() == id.Key() {
			t.Errorf("%+v has the key of %+v", other, id)
		}
	}
}

// memStore is a TokenStore in memory.
type memStore struct {
	mu       sync.Mutex
	tokens   []sandbox.Token
	previous map[string][sha256.Size]byte
	touches  int
	err      error
	now      func() time.Time
}

func newStore() *memStore {
	return &memStore{previous: map[string][sha256.Size]byte{}, now: time.Now}
}

func (s *memStore) dump() string {
	var b strings.Builder
	for _, t := range s.tokens {
		b.WriteString(t.ID + t.Name + string(t.Principal) + string(t.Hash[:]))
	}
	return b.String()
}

func (s *memStore) PutToken(_ context.Context, t sandbox.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, t)
	return nil
}

func (s *memStore) FindToken(_ context.Context, hash [sha256.Size]byte) (sandbox.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return sandbox.Token{}, s.err
	}
	for _, t := range s.tokens {
		if (t.Hash == hash || s.previous[t.ID] == hash && s.now().Before(t.PreviousUntil)) && t.Revoked.IsZero() {
			return t, nil
		}
	}
	return sandbox.Token{}, sandbox.Errorf(sandbox.NotFound, "no such token")
}

func (s *memStore) ListTokens(context.Context) ([]sandbox.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sandbox.Token(nil), s.tokens...), nil
}

func (s *memStore) TokensNamed(_ context.Context, idOrName string) ([]sandbox.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.tokens), func(t sandbox.Token) bool { return t.ID != idOrName && t.Name != idOrName }), nil
}

func (s *memStore) TouchToken(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touches++
	return nil
}

func (s *memStore) RotateToken(_ context.Context, id string, old, hash [sha256.Size]byte, until, expires time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.tokens {
		if t := &s.tokens[i]; t.ID == id && t.Hash == old && t.Revoked.IsZero() {
			s.previous[id], t.Hash, t.PreviousUntil, t.Expires = old, hash, until, expires
			t.Rotations++
			return nil
		}
	}
	return sandbox.Errorf(sandbox.Conflict, "not the hash")
}

func (s *memStore) RevokeToken(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range s.tokens {
		if t.ID == id {
			s.tokens[i].Revoked = time.Now()
			return nil
		}
	}
	return sandbox.Errorf(sandbox.NotFound, "no such token")
}

// TestRevoked revokes one of two tokens of a principal, then the other.
func TestRevoked(t *testing.T) {
	ctx := t.Context()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	a, err := auth.New(auth.Options{Tokens: newStore(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	text, first, err := a.Create(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	id, err := a.Verify(ctx, text)
	if err != nil {
		t.Fatal(err)
	}
	principal := auth.Identity{Principal: id.Principal}
	check := func(when string, token, owner bool) {
		t.Helper()
		now = now.Add(time.Minute)
		gone, err := a.Revoked(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cached, err := a.Gone(ctx, principal)
		if err != nil {
			t.Fatal(err)
		}
		if gone(id) != token || gone(principal) != owner || cached != owner {
			t.Errorf("%s: the token's identity %t, want %t; its principal's %t and %t, want %t", when, gone(id), token, gone(principal), cached, owner)
		}
		for _, other := range []auth.Identity{auth.Local(), {Principal: auth.StaticPrincipal}, {Principal: "oidc:x"}} {
			if gone(other) {
				t.Errorf("%s: %s is revoked, which has no token", when, other.Principal)
			}
		}
	}
	check("at first", false, false)
	if _, err := a.Revoke(ctx, first.ID); err != nil {
		t.Fatal(err)
	}
	check("revoked", true, true)
	if _, _, err := a.Create(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	check("replaced", true, false)
}

// TestGone asks again within a second, in which Gone may use what it knows.
func TestGone(t *testing.T) {
	ctx := t.Context()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	a, err := auth.New(auth.Options{Tokens: newStore(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) (auth.Identity, sandbox.Token) {
		t.Helper()
		text, token, err := a.Create(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		id, err := a.Verify(ctx, text)
		if err != nil {
			t.Fatal(err)
		}
		return id, token
	}
	check := func(when string, id auth.Identity, want bool) {
		t.Helper()
		if gone, err := a.Gone(ctx, id); err != nil || gone != want {
			t.Errorf("%s: %t, %v; want %t", when, gone, err, want)
		}
	}
	first, token := create("x")
	check("at first", first, false)
	second, _ := create("y")
	check("the token is newer than the answer before", second, false)
	third, _ := create("z")
	check("and a principal is", auth.Identity{Principal: third.Principal}, false)

	if _, err := a.Revoke(ctx, token.ID); err != nil {
		t.Fatal(err)
	}
	check("revoked a moment ago", first, false)
	if _, err := a.Revoked(ctx); err != nil {
		t.Fatal(err)
	}
	check("after Revoked", first, true)
	check("another token", second, false)
}
