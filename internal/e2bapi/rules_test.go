package e2bapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A plainRule is a header rule that can be compared.
type plainRule struct{ Host, Header, Value string }

func plainRules(rules []sandbox.Secret) []plainRule {
	var list []plainRule
	for _, r := range rules {
		list = append(list, plainRule{string(r.Hosts), r.Headers[0], r.Value.Reveal()})
	}
	return list
}

// TestRules converts E2B's transforms, and shows their values to nobody.
func TestRules(t *testing.T) {
	const value = "not-to-be-shown"
	e, s, srv := newTest(t)
	s.opts.Secrets = []sandbox.Secret{
		{Name: "KEY", Hosts: "api.example.com:443"},
		{Name: "HERS", Hosts: "api.example.com:443", Principals: []sandbox.Principal{"mallory"}},
	}
	for name, c := range map[string]struct {
		rules  string
		status int
		says   string
		want   []plainRule
	}{
		"one": {`{"api.example.com":[{"transform":{"headers":{"Authorization":"Bearer not-to-be-shown"}}}]}`, 201, "",
			[]plainRule{{"api.example.com:443", "Authorization", "Bearer not-to-be-shown"}}},
		"several": {`{"b.example.com:8443":[{"transform":{"headers":{"x-b":"2","X-A":"1"}}}],"a.example.com":[{},{"transform":{"headers":{"A":"not-to-be-shown"}}},{"transform":null}]}`, 201, "",
			[]plainRule{{"a.example.com:443", "A", value}, {"b.example.com:8443", "X-A", "1"}, {"b.example.com:8443", "X-B", "2"}}},
		"none":           {`{}`, 201, "", nil},
		"null":           {`null`, 201, "", nil},
		"empty":          {`{"api.example.com":[],"a.example.com":[{"transform":{}}]}`, 201, "", nil},
		"a secret":       {`{"api.example.com":[{"transform":{"headers":{"A":"x ${e2b.secrets.KEY} ${e2b.secrets.KEY}y"}}}]}`, 201, "", []plainRule{{"api.example.com:443", "A", "x glovebox-secret-KEY-placeholder glovebox-secret-KEY-placeholdery"}}},
		"another's":      {`{"api.example.com":[{"transform":{"headers":{"A":"${e2b.secrets.HERS}"}}}]}`, 400, "secret that is not there", nil},
		"an open secret": {`{"api.example.com":[{"transform":{"headers":{"A":"${e2b.secrets.KEY"}}}]}`, 400, "secret that is not there", nil},
		"an identity":    {`{"api.example.com":[{"transform":{"headers":{"A":"not-to-be-shown ${e2b.identity.tokens.aws}"}}}]}`, 501, "no workload identities", nil},
		"a query":        {`{"api.example.com":[{"transform":{"query":{"A":"not-to-be-shown"}}}]}`, 501, "query", nil},
		"another action": {`{"api.example.com":[{"deny":true}]}`, 501, "deny", nil},
		"a list":         {`["not-to-be-shown"]`, 400, "form", nil},
		"a number":       {`{"api.example.com":[{"transform":{"headers":{"A":1}}}]}`, 400, "form", nil},
		"Host":           {`{"api.example.com":[{"transform":{"headers":{"host":"not-to-be-shown"}}}]}`, 400, "host", nil},
		"a line end":     {`{"api.example.com":[{"transform":{"headers":{"A":"not-to-be-shown\r\nB: c"}}}]}`, 400, "control characters", nil},
		"an address":     {`{"192.0.2.1":[{"transform":{"headers":{"A":"not-to-be-shown"}}}]}`, 400, "192.0.2.1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			e.created = sandbox.CreateRequest{}
			status, _, body := do(t, "POST", srv.URL+"/sandboxes", `{"network":{"allowOut":["0.0.0.0/0"],"rules":`+c.rules+`}}`, "X-API-KEY", "alice")
			if status != c.status || !strings.Contains(body, c.says) || strings.Contains(body, value) {
				t.Fatalf("create: status %d, want %d: %s", status, c.status, body)
			}
			if diff := cmp.Diff(c.want, plainRules(e.created.HeaderRules)); diff != "" {
				t.Errorf("create: -want +got\n%s", diff)
			}
			id := e.add("alice", func(sb *sandbox.Sandbox) { sb.Network = sandbox.NetworkInternet })
			if status == 201 {
				var made sandboxAnswer
				if err := json.Unmarshal([]byte(body), &made); err != nil {
					t.Fatal(err)
				}
				for _, path := range []string{"/sandboxes/" + made.SandboxID, "/v2/sandboxes"} {
					if _, _, body := do(t, "GET", srv.URL+path, "", "X-API-KEY", "alice"); strings.Contains(body, value) {
						t.Errorf("%s shows the value: %s", path, body)
					}
				}
			}
			// An update replaces all rules, and without rules it removes them.
			want, rules := map[int]int{201: 204}[c.status], []sandbox.Secret(nil)
			if want == 0 {
				want = c.status
			}
			e.rules = nil
			status, _, body = do(t, "PUT", srv.URL+"/sandboxes/"+id+"/network", `{"rules":`+c.rules+`}`, "X-API-KEY", "alice")
			if status != want || !strings.Contains(body, c.says) || strings.Contains(body, value) {
				t.Fatalf("update: status %d, want %d: %s", status, want, body)
			}
			rules = e.rules
			if diff := cmp.Diff(c.want, plainRules(rules)); diff != "" || (rules == nil) != (want != 204) {
				t.Errorf("update: %v, -want +got\n%s", rules, diff)
			}
		})
	}
}
