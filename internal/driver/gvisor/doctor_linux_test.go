package gvisor

import (
	"strings"
	"testing"
	"time"
)

func TestCheckAge(t *testing.T) {
	const version = "v0.0.0-20260224225140-573d5e7127a8"
	made := time.Date(2026, 2, 24, 22, 51, 40, 0, time.UTC)
	for _, c := range []struct {
		name, version string
		after         time.Duration
		ok, fix       bool
		detail        string
	}{
		{"new", version, 30 * 24 * time.Hour, true, false, "of 2026-02-24, 30 days old"},
		{"old", version, 272 * 24 * time.Hour, false, true, "of 2026-02-24, 272 days old; docs/SECURITY.md"},
		{"unknown", "(devel)", 0, false, false, "does not say"},
		{"none", "", 0, false, false, "does not say"},
	} {
		got := checkAge(c.version, made.Add(c.after))
		if got.OK != c.ok || got.Fatal || (got.Fix != "") != c.fix || !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
