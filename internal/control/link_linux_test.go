package control

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestLink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	s, err := Serve(path, scripted{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := Client{path}
	if _, err := c.Link(t.Context(), ""); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
		t.Errorf("without a dashboard: %v", err)
	}
	want := Link{URL: "http://127.0.0.1:1/ui/open?code=x", Principal: "token:alice", Expires: time.Now().UTC().Truncate(time.Second)}
	s.OfferLinks(func(_ context.Context, token string) (Link, error) {
		if token != "alice" {
			return Link{}, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is no token %q", token), "list them")
		}
		return want, nil
	})
	if got, err := c.Link(t.Context(), "alice"); err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := c.Link(t.Context(), "bob"); sandbox.KindOf(err) != sandbox.NotFound || sandbox.HintOf(err) != "list them" {
		t.Errorf("of nobody: %v", err)
	}
}
