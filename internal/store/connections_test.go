package store

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestConnections(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	sb := testSandbox("me")
	if err := s.InsertSandbox(ctx, sb); err != nil {
		t.Fatal(err)
	}
	now := s.Now()
	var list []sandbox.Connection
	for i := range int64(5) {
		list = append(list, sandbox.Connection{
			Number: i + 1, Protocol: sandbox.ProtocolTCP, Host: "a.example", Address: netip.MustParseAddr("2001:db8::1"), Port: 443,
			Sent: i, Received: 1 << 40, Started: now, Ended: now.Add(time.Second),
		})
	}
	list[2] = sandbox.Connection{Number: 3, Protocol: sandbox.ProtocolDNS, Host: "b.example", Blocked: sandbox.BlockedPolicy, Started: now, Ended: now}
	for range 2 { // what is there already does no harm
		if err := s.AddConnections(ctx, sb.ID, list); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Connections(ctx, sb.ID, 3)
	if d := cmp.Diff(list[2:], got, cmpopts.EquateComparable(netip.Addr{})); err != nil || d != "" {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
	if n, err := s.LastConnection(ctx, sb.ID); n != 5 || err != nil {
		t.Errorf("LastConnection = %d, %v", n, err)
	}
	if n, err := s.LastConnection(ctx, sandbox.NewID()); n != 0 || err != nil {
		t.Errorf("LastConnection of none = %d, %v", n, err)
	}
	if err := s.AddConnections(ctx, sandbox.NewID(), list); err != nil {
		t.Errorf("of a sandbox that is gone: %v", err)
	}
	if err := s.SetNetwork(ctx, sb.ID, "internet,!192.0.2.0/24"); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Sandbox(ctx, sb.ID); err != nil || r.Network != "internet,!192.0.2.0/24" {
		t.Errorf("network %q, %v", r.Network, err)
	}
	if err := s.DeleteSandbox(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Connections(ctx, sb.ID, 3); err != nil || len(got) != 0 {
		t.Errorf("after the sandbox's end in the store: %v, %v", got, err)
	}
}

// TestConnectionsAreBounded has a sandbox, and a principal with many, that reach
// more than is kept on record.
func TestConnectionsAreBounded(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	now := s.Now()
	fill := func(p sandbox.Principal, n int64) string {
		t.Helper()
		sb := testSandbox("owner")
		sb.Principal = p
		if err := s.InsertSandbox(ctx, sb); err != nil {
			t.Fatal(err)
		}
		var list []sandbox.Connection
		for i := range n {
			list = append(list, sandbox.Connection{Number: i + 1, Protocol: sandbox.ProtocolTCP, Started: now, Ended: now.Add(time.Duration(i) * time.Second)})
		}
		if err := s.AddConnections(ctx, sb.ID, list); err != nil {
			t.Fatal(err)
		}
		return sb.ID
	}
	count := func(id string) (n int, first int64) {
		t.Helper()
		list, err := s.Connections(ctx, id, 1<<20)
		if err != nil || len(list) == 0 {
			t.Fatalf("%d connections, %v", len(list), err)
		}
		return len(list), list[0].Number
	}
	flood := fill("mallory", MaxConnections+500)
	if n, first := count(flood); n != MaxConnections || first != 501 {
		t.Errorf("a sandbox has %d on record, from number %d; want the latest %d", n, first, MaxConnections)
	}
	mine := fill("me", 50)
	many := []string{fill("mallory", 100), fill("mallory", 100)}
	if err := s.ForgetConnections(ctx, 150); err != nil {
		t.Fatal(err)
	}
	if n, _ := count(mine); n != 50 {
		t.Errorf("of another principal %d are left, want all 50", n)
	}
	total := 0
	for _, id := range append(many, flood) {
		list, err := s.Connections(ctx, id, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		total += len(list)
	}
	if total != 150 {
		t.Errorf("the principal has %d on record, want 150", total)
	}
}
