package engine

import (
	"errors"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestDiffChecks(t *testing.T) {
	e := openWorld(t, newWorld(), t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	if d, err := e.Diff(t.Context(), alice, s.ID, sandbox.DiffRequest{Path: "x", MaxText: sandbox.MaxDiffText}); err != nil || d.Text != "text" {
		t.Errorf("%+v, %v", d, err)
	}
	for what, r := range map[string]sandbox.DiffRequest{
		"a text beyond the bound": {MaxText: sandbox.MaxDiffText + 1}, "a negative bound": {MaxText: -1},
		"no run": {Since: "yesterday"}, "an unknown run": {Since: "run_aaaaaaaaaaaaaaaaaaaaaaaaaa"}, "a path with NUL": {Path: "a\x00"},
	} {
		if _, err := e.Diff(t.Context(), alice, s.ID, r); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := e.Diff(t.Context(), "bob", s.ID, sandbox.DiffRequest{}); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another's sandbox: %v", err)
	}
}
