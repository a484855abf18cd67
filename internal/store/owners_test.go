package store

import "testing"

// TestServed registers a command and a server, and ends the server.
func TestServed(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	check := func(when string, want bool) {
		t.Helper()
		if ids, err := s.Servers(t.Context()); err != nil || len(ids) > 0 != want {
			t.Errorf("%s: servers %v, %v", when, ids, err)
		}
		if got, err := s.Served(t.Context()); err != nil || got != want {
			t.Errorf("%s: %t, %v; want %t", when, got, err, want)
		}
	}
	var owners []*Owner
	register := func(detached bool) {
		t.Helper()
		o, err := s.RegisterOwner(t.Context(), detached)
		if err != nil {
			t.Fatal(err)
		}
		owners = append(owners, o)
	}
	check("at first", false)
	register(false)
	check("with a command", false)
	register(true)
	check("with a server", true)
	owners[1].file.Close() // as the end of the process does
	check("with a dead server", false)
	for _, o := range owners {
		if err := o.Release(t.Context()); err != nil && o != owners[1] {
			t.Error(err)
		}
	}
}
