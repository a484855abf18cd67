package app

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/adminapi"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// others are the patterns of protocols that are not described by our document.
var others = []string{
	"/.well-known/",         // nothing
	"/mcp", "/mcp/", "/sse", // MCP
	"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/", // OAuth
	"/register", "/authorize", "/token", "/revoke", "/device", "/device_authorization",
	"/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/", "/.well-known/openid-configuration", "/.well-known/openid-configuration/",
	"/e2b/", "/files", // E2B's protocol
	"/ui/", "/", // pages, and the answer that there is nothing
}

type document struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		Parameters []struct{ Name, In string }
		Responses  map[string]any
	}
	Components struct {
		Schemas map[string]struct {
			Enum       []string
			Properties map[string]struct{ Enum []string }
		}
	}
}

// TestOpenAPI compares the document with the routes of a whole server, both ways, with
// the names that the program uses, and with the copy in the documentation.
func TestOpenAPI(t *testing.T) {
	var doc document
	if err := json.Unmarshal(adminapi.Document, &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Fatalf("version %q, %v", doc.OpenAPI, err)
	}
	described := map[string]bool{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			described[strings.ToUpper(method)+" "+path] = true
			if len(op.Responses) < 2 {
				t.Errorf("%s %s has no answer beside the error", method, path)
			}
			for rest := path; strings.Contains(rest, "{"); {
				var name string
				_, rest, _ = strings.Cut(rest, "{")
				name, rest, _ = strings.Cut(rest, "}")
				if !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In string }) bool { return p.Name == name && p.In == "path" }) {
					t.Errorf("%s %s does not describe {%s}", method, path, name)
				}
			}
		}
	}
	sys := mustOpen(t, func() Options { o := testOptions(t, t.TempDir()); o.Metrics = true; return o }())
	opts, err := sys.front()
	if err != nil {
		t.Fatal(err)
	}
	opts.Listen, opts.ServeMetrics = "127.0.0.1:0", true
	opts.MCP = http.NotFoundHandler()
	opts.Files, opts.Usage = sys.served, sys.store
	sys.serveAdministration(&opts)
	front, err := httpserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, p := range front.Patterns() {
		switch {
		case p == "/files/": // it takes the methods of links
			served["GET /files/{handle}/{path}"], served["PUT /files/{handle}/{path}"] = true, true
		case !slices.Contains(others, p):
			served[p] = true
		}
	}
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("-routes +document\n%s", diff)
	}
	var roles, scopes, limits, kinds []string
	for _, r := range auth.Roles() {
		roles = append(roles, string(r))
	}
	for _, s := range auth.Scopes() {
		scopes = append(scopes, string(s))
	}
	for _, l := range usage.LimitNames() {
		limits = append(limits, string(l))
	}
	for _, k := range []sandbox.Kind{
		sandbox.Invalid, sandbox.NotFound, sandbox.Exhausted, sandbox.Unsupported, sandbox.Unavailable, sandbox.Conflict,
		sandbox.Unauthenticated, sandbox.Forbidden, sandbox.Internal,
	} {
		kinds = append(kinds, string(k))
	}
	for name, want := range map[string][]string{"Role": roles, "Scope": scopes, "Limit": limits} {
		if diff := cmp.Diff(want, doc.Components.Schemas[name].Enum); diff != "" {
			t.Errorf("%s: -program +document\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(kinds, doc.Components.Schemas["Problem"].Properties["kind"].Enum); diff != "" {
		t.Errorf("kinds: -program +document\n%s", diff)
	}
	const copied = "../../docs/reference/openapi.json"
	if in, err := os.ReadFile(copied); err != nil || !bytes.Equal(in, adminapi.Document) {
		t.Errorf("%s is not a copy of internal/adminapi/openapi.json: %v", copied, err)
	}
}
