package auth_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		a, err := auth.New(auth.Options{Tokens: newStore()})
		if err != nil {
			t.Fatal(err)
		}
		text, tok, err := a.Make(ctx, auth.TokenSpec{Name: "ci", Lifetime: time.Hour, Description: "the build"})
		if err != nil || !tok.Expires.Equal(time.Now().Add(time.Hour)) || tok.Description != "the build" {
			t.Fatalf("%+v, %v", tok, err)
		}
		id, err := a.Verify(ctx, text)
		if err != nil || !id.Expires.Equal(tok.Expires) {
			t.Fatalf("%+v, %v", id, err)
		}
		time.Sleep(time.Hour)
		if _, err := a.Verify(ctx, text); !errors.Is(err, sandbox.Unauthenticated) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("the token after its end: %v", err)
		}
		time.Sleep(time.Minute) // the grace of calls that had begun
		if gone, err := a.Gone(ctx, id); err != nil || !gone {
			t.Errorf("what it opened: gone %t, %v", gone, err)
		}
		if _, _, err := a.Rotate(ctx, "ci", auth.Rotation{}); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("rotation of an expired token: %v", err)
		}
		if _, _, err := a.Create(ctx, "ci"); err != nil {
			t.Errorf("a token of the same name: %v", err)
		}
	})
}

// TestRotate follows a client that moves to the new text within the grace, and one that
// does not.
func TestRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		a, err := auth.New(auth.Options{Tokens: newStore()})
		if err != nil {
			t.Fatal(err)
		}
		old, tok, err := a.Make(ctx, auth.TokenSpec{Name: "ci", Lifetime: 100 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		before, err := a.Verify(ctx, old)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Hour)
		text, rotated, err := a.Rotate(ctx, "ci", auth.Rotation{Grace: time.Hour})
		if err != nil || text == old || rotated.ID != tok.ID || !rotated.Expires.Equal(time.Now().Add(100*time.Hour)) {
			t.Fatalf("%+v, %v", rotated, err)
		}
		gone := func(id auth.Identity) bool {
			t.Helper()
			g, err := a.Gone(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		late, err := a.Verify(ctx, old)
		if err != nil || gone(before) || gone(late) {
			t.Fatalf("the old text within the grace: %+v, %v", late, err)
		}
		time.Sleep(time.Hour)
		if _, err := a.Verify(ctx, old); !errors.Is(err, sandbox.Unauthenticated) {
			t.Errorf("the old text after the grace: %v", err)
		}
		if !gone(before) || !gone(late) || !gone(a.Renewed(before)) {
			t.Error("what the old text opened goes on, though nobody used the new one")
		}
		after, err := a.Verify(ctx, text)
		if err != nil || after.Key() != before.Key() {
			t.Fatalf("the new text: %+v, %v", after, err)
		}
		if gone(after) || gone(a.Renewed(before)) || !gone(before) {
			t.Error("a session must go on with the new text, and a request with the old one must not")
		}
		granted := auth.Identity{Principal: before.Principal, Token: tok.ID, Grant: "grant"}
		if !gone(granted) {
			t.Error("a grant that does not exist goes on")
		}
	})
}

func TestMakeRefuses(t *testing.T) {
	a, err := auth.New(auth.Options{Tokens: newStore()})
	if err != nil {
		t.Fatal(err)
	}
	for argument, spec := range map[string]auth.TokenSpec{
		"name":        {Name: "a b"},
		"principal":   {Name: "a", Principal: "oidc:x"},
		"scope":       {Name: "a", Scopes: []auth.Scope{"all"}},
		"expires":     {Name: "a", Lifetime: -1},
		"description": {Name: "a", Description: "two\nlines"},
	} {
		if _, _, err := a.Make(t.Context(), spec); !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), argument+":") {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	if _, _, err := a.Rotate(t.Context(), "none", auth.Rotation{}); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("rotation of no token: %v", err)
	}
}

func TestRoles(t *testing.T) {
	type can struct{ Run, Files, ReadRun, ReadFiles, Operate, Admin bool }
	want := map[auth.Role]can{
		auth.RoleAdmin:    {true, true, true, true, true, true},
		auth.RoleOperator: {false, false, true, true, true, false},
		auth.RoleMember:   {true, true, true, true, false, false},
		auth.RoleReadOnly: {false, false, true, true, false, false},
	}
	for _, role := range auth.Roles() {
		scopes, err := role.Scopes()
		if err != nil {
			t.Fatal(err)
		}
		id := auth.Identity{Scopes: scopes}
		got := can{id.Can(auth.ScopeRun), id.Can(auth.ScopeFiles), id.May(auth.ScopeRun, true), id.Reads(auth.ScopeFiles), id.Can(auth.ScopeOperate), id.Can(auth.ScopeAdmin)}
		if diff := cmp.Diff(want[role], got); diff != "" {
			t.Errorf("%s: -want +got\n%s", role, diff)
		}
		var names []string
		for _, s := range scopes {
			names = append(names, string(s))
		}
		if got := auth.RoleOf(names); got != role {
			t.Errorf("the role of %v is %s, want %s", names, got, role)
		}
	}
	if id := (auth.Identity{Scopes: []auth.Scope{auth.ScopeFiles}}); id.Reads(auth.ScopeRun) {
		t.Error("a token for files reads runs")
	}
}
