package e2bapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		{"one address denied", "alice", `{"denyOut":["192.0.2.1","198.51.100.0/24"]}`, 204, "internet,!192.0.2.1,!198.51.100.0/24"},
		{"a name denied", "alice", `{"denyOut":["example.com"]}`, 400, "internet,!192.0.2.1,!198.51.100.0/24"},
		{"no rule again", "alice", `{}`, 204, sandbox.NetworkInternet},
		{"unknown field", "alice", `{"all":true}`, 400, sandbox.NetworkInternet},
		{"another's", "mallory", `{"allow_internet_access":false}`, 404, sandbox.NetworkInternet},
	} {
		status, _, body := do(t, "PUT", srv.URL+"/sandboxes/"+id+"/network", c.body, "X-API-KEY", c.key)
		if status != c.status || e.boxes[id].Network != c.want {
			t.Errorf("%s: status %d (%s), network %s; want %d, %s", c.name, status, body, e.boxes[id].Network, c.status, c.want)
		}
	}
}

// TestDenyOut converts E2B's denied destinations to policies, and back.
func TestDenyOut(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		allowed sandbox.Network // by the operator
		body    string
		status  int
		want    sandbox.Network
		info    networkConfig
	}{
		"one address": {sandbox.NetworkInternet, `{"denyOut":["192.0.2.1/32"]}`, 201, "internet,!192.0.2.1",
			networkConfig{DenyOut: []string{"192.0.2.1"}, AllowPublicTraffic: &no}},
		"a range, but one address": {sandbox.NetworkInternet, `{"denyOut":["192.0.2.0/24"],"allowOut":["192.0.2.7"]}`, 201, "192.0.2.7,internet,!192.0.2.0/24",
			networkConfig{AllowOut: []string{"192.0.2.7"}, DenyOut: []string{"192.0.2.0/24"}, AllowPublicTraffic: &no}},
		"everything, and one address": {sandbox.NetworkInternet, `{"denyOut":["0.0.0.0/0","192.0.2.1"],"allowOut":["example.com"]}`, 201, "example.com",
			networkConfig{AllowOut: []string{"example.com"}, DenyOut: []string{all}, AllowPublicTraffic: &no}},
		"of what the operator allows": {"pypi.org,internet:443", `{"denyOut":["192.0.2.1"]}`, 201, "pypi.org,internet:443,!192.0.2.1",
			networkConfig{AllowOut: []string{"pypi.org", "internet:443"}, DenyOut: []string{all}, AllowPublicTraffic: &no}},
		"hosts by both kinds of addresses": {sandbox.NetworkInternet, `{"denyOut":["192.0.2.0/24","::/0"]}`, 201, "internet,!192.0.2.0/24,!::/0",
			networkConfig{DenyOut: []string{"192.0.2.0/24", "::/0"}, AllowPublicTraffic: &no}},
		"a range of the operator": {"9.9.9.9:443,internet,8.8.0.0/16:443", `{"denyOut":["8.8.0.0/15"]}`, 201, "internet,9.9.9.9:443,!8.8.0.0/15",
			networkConfig{AllowOut: []string{"9.9.9.9:443"}, DenyOut: []string{"8.8.0.0/15"}, AllowPublicTraffic: &no}},
		"the only range of the operator": {"8.8.0.0/16:443", `{"denyOut":["8.8.0.0/16"]}`, 201, sandbox.NetworkNone,
			networkConfig{DenyOut: []string{all}, AllowPublicTraffic: &no}},
		"a range of the operator, but a part": {"internet,8.8.0.0/16:443", `{"denyOut":["8.8.0.0/16"],"allowOut":["8.8.7.0/24:443"]}`, 201, "8.8.7.0/24:443,internet,!8.8.0.0/16",
			networkConfig{AllowOut: []string{"8.8.7.0/24:443"}, DenyOut: []string{"8.8.0.0/16"}, AllowPublicTraffic: &no}},
		"a range that the client allows": {"8.8.0.0/16:443", `{"denyOut":["8.8.7.7"],"allowOut":["8.8.0.0/16:443"]}`, 201, "8.8.0.0/16:443,!8.8.7.7",
			networkConfig{AllowOut: []string{"8.8.0.0/16:443"}, DenyOut: []string{all}, AllowPublicTraffic: &no}},
		"a part of a range of the operator": {"internet,8.8.0.0/16:443", `{"denyOut":["8.8.7.7"]}`, 400, "", networkConfig{}},
		"where nothing is allowed": {sandbox.NetworkNone, `{"denyOut":["192.0.2.1"]}`, 201, sandbox.NetworkNone,
			networkConfig{DenyOut: []string{all}, AllowPublicTraffic: &no}},
		"a name denied of nothing": {sandbox.NetworkNone, `{"denyOut":["example.com"]}`, 400, "", networkConfig{}},
		"names without all denied": {sandbox.NetworkInternet, `{"denyOut":["192.0.2.1"],"allowOut":["example.com"]}`, 400, "", networkConfig{}},
		"a name denied":            {sandbox.NetworkInternet, `{"denyOut":["example.com"]}`, 400, "", networkConfig{}},
		"half a range denied":      {sandbox.NetworkInternet, `{"denyOut":["192.0.2.1/24"]}`, 400, "", networkConfig{}},
	} {
		t.Run(name, func(t *testing.T) {
			e, _, srv := newTest(t)
			e.allowed = c.allowed
			status, _, body := do(t, "POST", srv.URL+"/sandboxes", `{"templateID":"base","network":`+c.body+`}`, "X-API-KEY", "alice")
			if status != c.status {
				t.Fatalf("status %d (%s), want %d", status, body, c.status)
			}
			if strings.HasPrefix(name, "a part of") && !strings.Contains(body, "8.8.7.7 is a part of 8.8.0.0/16:443") {
				t.Errorf("the error is %s", body)
			}
			if status != 201 {
				return
			}
			if e.created.Network != c.want {
				t.Errorf("the engine is asked for the network %q, want %q", e.created.Network, c.want)
			}
			var made sandboxAnswer
			if err := json.Unmarshal([]byte(body), &made); err != nil {
				t.Fatal(err)
			}
			var detail struct {
				Network             networkConfig
				AllowInternetAccess *bool
			}
			_, _, body = do(t, "GET", srv.URL+"/sandboxes/"+made.SandboxID, "", "X-API-KEY", "alice")
			if err := json.Unmarshal([]byte(body), &detail); err != nil {
				t.Fatal(err)
			}
			internet := &no
			if strings.Contains(","+string(c.want), ",internet,") {
				internet = &yes
			}
			if diff := cmp.Diff(c.info, detail.Network); diff != "" || detail.AllowInternetAccess == nil || *detail.AllowInternetAccess != *internet {
				t.Errorf("the sandbox's network is reported as %s", body)
			}
		})
	}
}
