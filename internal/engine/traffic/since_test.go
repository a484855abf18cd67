package traffic

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestSince compares the hosts that a sandbox reached before a run and after it.
func TestSince(t *testing.T) {
	open := sandbox.Destination{Host: "open.example", Port: 443, Connections: 1, Sent: 10, Received: 10}
	before := []sandbox.Destination{open, {Host: "same.example", Port: 443, Connections: 2}}
	more := open
	more.Connections, more.Sent, more.Received = 1, 15, 30
	after := []sandbox.Destination{more, before[1], {Host: "open.example", Port: 443, Blocked: sandbox.BlockedPolicy, Connections: 1}}
	want := &sandbox.RunNetwork{
		Reached: []sandbox.Destination{{Host: "open.example", Port: 443, Sent: 5, Received: 20}},
		Blocked: []sandbox.Destination{{Host: "open.example", Port: 443, Blocked: sandbox.BlockedPolicy, Connections: 1}},
	}
	if diff := cmp.Diff(want, Since(before, after)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	var many []sandbox.Destination
	for i := range maxRunHosts + 2 {
		many = append(many, sandbox.Destination{Host: fmt.Sprintf("h%d.example", i), Connections: 1})
	}
	if got := Since(nil, many); len(got.Reached) != maxRunHosts || got.More != 2 {
		t.Errorf("%d hosts, and %d more", len(got.Reached), got.More)
	}
}
