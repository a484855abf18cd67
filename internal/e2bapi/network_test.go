package e2bapi

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestSetNetwork(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", func(sb *sandbox.Sandbox) { sb.Network = sandbox.NetworkInternet })
	for _, c := range []struct {
		name, key, body string
		status          int
		want            sandbox.Network
	}{
		{"narrower", "alice", `{"denyOut":["0.0.0.0/0"],"allowOut":["example.com"]}`, 204, "example.com"},
		{"nothing", "alice", `{"allow_internet_access":false}`, 204, sandbox.NetworkNone},
		{"no rule", "alice", `{}`, 204, sandbox.NetworkInternet},
		{"what cannot be had", "alice", `{"denyOut":["192.0.2.1"]}`, 501, sandbox.NetworkInternet},
		{"unknown field", "alice", `{"all":true}`, 400, sandbox.NetworkInternet},
		{"another's", "mallory", `{"allow_internet_access":false}`, 404, sandbox.NetworkInternet},
	} {
		status, _, body := do(t, "PUT", srv.URL+"/sandboxes/"+id+"/network", c.body, "X-API-KEY", c.key)
		if status != c.status || e.boxes[id].Network != c.want {
			t.Errorf("%s: status %d (%s), network %s; want %d, %s", c.name, status, body, e.boxes[id].Network, c.status, c.want)
		}
	}
}
