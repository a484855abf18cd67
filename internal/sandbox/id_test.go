package sandbox

import (
	"regexp"
	"strings"
	"testing"
)

// TestHostID converts identifiers to the form of host names and back.
func TestHostID(t *testing.T) {
	id := NewID()
	host := HostID(id)
	if !regexp.MustCompile(`^[a-z0-9]+$`).MatchString(host) || strings.Replace(host, "sbx", IDPrefix, 1) != id {
		t.Errorf("HostID(%s) = %s", id, host)
	}
	for _, form := range []string{id, host} {
		if got := CanonicalID(form); got != id {
			t.Errorf("CanonicalID(%s) = %s, want %s", form, got, id)
		}
	}
	for _, text := range []string{"", "sbx", "sbx_", "box", host + "a", host[:len(host)-1], id + "a", strings.ToUpper(host), "sbx1" + host[4:], NewRunID()} {
		if got := CanonicalID(text); got != text {
			t.Errorf("CanonicalID(%q) = %q, want it unchanged", text, got)
		}
		if got := HostID(text); got != text {
			t.Errorf("HostID(%q) = %q, want it unchanged", text, got)
		}
	}
}
