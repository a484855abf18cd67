package app

import (
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestCallers names the principal and the client that do not end their sandboxes.
func TestCallers(t *testing.T) {
	now := time.Now()
	var live []sandbox.Sandbox
	var of []sandbox.Principal
	add := func(p sandbox.Principal, age time.Duration, client string) {
		sb := sandbox.Sandbox{Created: now.Add(-age)}
		if client != "" {
			sb.Labels = map[string]string{"glovebox.e2b/client": client}
		}
		live, of = append(live, sb), append(of, p)
	}
	check := func(name string, status CheckStatus, detail string) {
		t.Helper()
		c, ok := callers(live, of, 6, now)
		if !ok || c.Status != status || c.Detail != detail || (c.Fix != "") != (status == CheckNote) {
			t.Errorf("%s: %+v, %v; want %s, %q", name, c, ok, status, detail)
		}
	}
	if c, ok := callers(nil, nil, 6, now); ok {
		t.Errorf("none: %+v", c)
	}
	add("token:alice", time.Hour, "")
	check("one", CheckOK, "1 of at most 6; token:alice has the most: 1, the oldest for 1h0m0s")
	add("token:bob", time.Minute, "e2b-js-sdk/2.51.0")
	add("token:bob", 2*time.Minute, "e2b-python-sdk/2.34.0")
	check("a second", CheckOK, `3 of at most 6; token:bob has the most: 2, the oldest for 2m0s; 1 by the client "e2b-js-sdk/2.51.0"`)
	add("token:bob", time.Second, "e2b-python-sdk/2.34.0")
	check("half of all", CheckNote, `4 of at most 6; token:bob has the most: 3, the oldest for 2m0s; 2 by the client "e2b-python-sdk/2.34.0"`)
}
