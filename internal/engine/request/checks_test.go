package request

import (
	"strings"
	"testing"
)

func TestHostname(t *testing.T) {
	for name, want := range map[string]string{
		"": "sandbox", "My Box": "my-box", "---": "sandbox", "ü": "sandbox",
		strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62),
	} {
		if got := Hostname(name); got != want {
			t.Errorf("Hostname(%q) = %q, want %q", name, got, want)
		}
	}
}
