package sandbox

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseReady(t *testing.T) {
	for text, want := range map[string]*ReadyCheck{
		"":                  nil,
		"port:8000":         {Port: 8000, Timeout: time.Minute},
		"output:^a: b$":     {Output: "^a: b$", Timeout: time.Minute},
		"command:nc -z ::1": {Command: "nc -z ::1", Timeout: time.Minute},
	} {
		got, err := ParseReady(text, time.Minute)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%q: %v, -want +got\n%s", text, err, d)
		}
	}
	for _, text := range []string{"8000", "port:", "port:-1", "port:65536", "port:x", "url:x"} {
		if _, err := ParseReady(text, 0); !errors.Is(err, Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
