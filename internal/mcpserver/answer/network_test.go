package answer

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestNetworkText(t *testing.T) {
	if got := networkText(sandbox.RunNetwork{}); got != "" {
		t.Errorf("nothing reached gives %q", got)
	}
	n := sandbox.RunNetwork{
		Reached: []sandbox.Destination{{Host: "a.example", Port: 443, Connections: 2, Sent: 5, Received: 2048}},
		Blocked: []sandbox.Destination{{Host: "b.example", Blocked: sandbox.BlockedPolicy}},
	}
	for range mostShown {
		n.Blocked = append(n.Blocked, sandbox.Destination{Host: "10.0.0.1", Port: 80, Blocked: sandbox.BlockedPrivate})
	}
	want := "network reached: a.example port 443 (sent 5 B, received 2 KiB)\n" +
		"network blocked: b.example (not allowed)"
	for range mostShown - 1 {
		want += ", 10.0.0.1 port 80 (address is not public)"
	}
	if got := networkText(n); got != want+", and 1 more\n" {
		t.Errorf("%q", got)
	}
}
