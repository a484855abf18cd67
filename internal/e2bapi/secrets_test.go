package e2bapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestSecrets lists the operator's secrets for those whose sandboxes use them, without
// their values.
func TestSecrets(t *testing.T) {
	_, s, srv := newTest(t)
	value := sandbox.NewSecretValue("the-hidden-value")
	s.opts.Secrets = []sandbox.Secret{
		{Name: "ZED", Hosts: "z.example.com:443", Value: value},
		{Name: "API_KEY", Hosts: "api.example.com:443", Value: value, Principals: []sandbox.Principal{"alice"}},
		{Name: "HERS", Hosts: "api.example.com:443", Value: value, Principals: []sandbox.Principal{"mallory"}},
	}
	status, h, body := do(t, "GET", srv.URL+"/secrets?limit=1", "", "X-API-KEY", "alice")
	var got []secretInfo
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("status %d, %v: %s", status, err, body)
	}
	want := []secretInfo{{
		SecretID: "API_KEY", Name: "API_KEY", Version: 1, CreatedAt: now, UpdatedAt: now,
		Metadata: map[string]string{"hosts": "api.example.com:443", "variable": "API_KEY"},
	}}
	if diff := cmp.Diff(want, got); diff != "" || h.Get("X-Next-Token") != "API_KEY" {
		t.Errorf("next %q: %s", h.Get("X-Next-Token"), diff)
	}
	for _, tt := range []struct {
		method, path string
		want         int
		has, not     string
	}{
		{"GET", "/secrets?nextToken=API_KEY", 200, `"name":"ZED"`, "API_KEY"},
		{"GET", "/secrets", 200, `"name":"ZED"`, "HERS"},
		{"GET", "/secrets?limit=0", 400, "limit", ""},
		{"GET", "/secrets/API_KEY", 200, `"hosts":"api.example.com:443"`, ""},
		{"GET", "/secrets/HERS", 404, "no secret", ""},
		{"GET", "/secrets/none", 404, "no secret", ""},
		{"POST", "/secrets", 501, "network.rules", ""},
		{"POST", "/secrets/API_KEY", 501, "operator", ""},
		{"DELETE", "/secrets/API_KEY", 501, "operator", ""},
	} {
		status, _, body := do(t, tt.method, srv.URL+tt.path, `{"name":"x","value":"y"}`, "X-API-KEY", "alice")
		if status != tt.want || !strings.Contains(body, tt.has) || tt.not != "" && strings.Contains(body, tt.not) || strings.Contains(body, "hidden") {
			t.Errorf("%s %s: status %d: %s", tt.method, tt.path, status, body)
		}
	}
}
