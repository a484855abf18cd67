package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestStopRevoked has a request that the server accepted before the revocation make
// a sandbox after the first ones were listed. Meanwhile, a new token makes another
// principal valid again.
func TestStopRevoked(t *testing.T) {
	const dave, erin = sandbox.Principal("token:dave"), sandbox.Principal("token:erin")
	sys, _ := serveHTTP(t, func(o *Options) { o.Detached = true })
	create := func(p sandbox.Principal) string {
		t.Helper()
		sb, err := sys.Engine.Create(t.Context(), p, sandbox.CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return sb.ID
	}
	want := []string{create(dave)}
	kept := []string{create(sandbox.Local)}
	var got []string
	err := sys.StopRevoked(t.Context(), []sandbox.Principal{dave, erin}, func(id string) {
		if got = append(got, id); len(got) > 1 {
			return
		}
		want = append(want, create(dave))
		if _, _, err := sys.auth.Create(t.Context(), "erin"); err != nil {
			t.Error(err)
		}
		kept = append(kept, create(erin))
	})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, stopped (-want +got):\n%s", err, diff)
	}
	list, err := sys.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var alive []string
	for _, s := range list {
		alive = append(alive, s.ID)
		if err := sys.StopSandbox(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(kept, alive); diff != "" {
		t.Errorf("the live sandboxes (-want +got):\n%s", diff)
	}
}
