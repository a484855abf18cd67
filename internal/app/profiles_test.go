package app

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An original is the surface of a server that a profile stands for, written
// down from that server: what its clients depend on.
type original struct {
	Name  string         `json:"name"` // of its serverInfo
	Tools map[string]any `json:"tools"`
	// Documented are names that only its documentation has, and the tools
	// they are.
	Documented map[string]string `json:"documented"`
	// Resources are templates of URIs, and their types.
	Resources map[string]string `json:"resources"`
}

// TestProfilesAreTheOriginals compares what clients are told of each profile
// with what the original tells: names, types, defaults and what is required.
// Descriptions are ours.
func TestProfilesAreTheOriginals(t *testing.T) {
	s := mustOpen(t, testOptions(t, t.TempDir()))
	for _, m := range profiles() {
		t.Run(m.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "mcpserver", "profile", dirOf(m.name), "testdata", "original.json"))
			if err != nil {
				t.Fatal(err)
			}
			var want original
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			for name, is := range want.Documented {
				want.Tools[name] = want.Tools[is]
			}
			p := m.new(s, s.profileOptions())
			if p.Name != m.name || p.ServerName != want.Name {
				t.Errorf("profile %q calls itself %q; want %q, %q", p.Name, p.ServerName, m.name, want.Name)
			}
			got := map[string]any{}
			for _, tool := range p.Tools {
				var schema any
				if err := json.Unmarshal([]byte(tool.Input), &schema); err != nil {
					t.Fatalf("%s: %v", tool.Name, err)
				}
				got[tool.Name] = bare(schema, true)
				if tool.Description == "" {
					t.Errorf("%s has no description", tool.Name)
				}
			}
			for name, schema := range want.Tools {
				want.Tools[name] = bare(schema, true)
			}
			if diff := cmp.Diff(want.Tools, got); diff != "" {
				t.Errorf("tools (-original +ours):\n%s", diff)
			}
			resources := map[string]string{}
			for _, r := range p.Resources {
				resources[r.Template] = r.MIMEType
			}
			if !maps.Equal(resources, want.Resources) {
				t.Errorf("resources %v; want %v", resources, want.Resources)
			}
		})
	}
}

// dirOf is the directory of a profile's package.
func dirOf(name string) string {
	if name == "code-runner" {
		return "coderunner"
	}
	return name
}

// bare is a schema without what is for people, and with an order where order
// means nothing. Properties are named by callers, not by JSON Schema.
func bare(v any, isSchema bool) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for name, part := range v {
			if isSchema && (name == "description" || name == "title" || name == "enum") {
				continue // an enum is of what is there, which is another matter
			}
			m[name] = bare(part, !isSchema || name != "properties")
		}
		if required, ok := m["required"].([]any); ok && isSchema {
			slices.SortFunc(required, func(a, b any) int { return cmpText(a, b) })
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, part := range v {
			list[i] = bare(part, true)
		}
		return list
	}
	return v
}

func cmpText(a, b any) int {
	x, _ := a.(string)
	y, _ := b.(string)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func TestProfileNames(t *testing.T) {
	s := mustOpen(t, testOptions(t, t.TempDir()))
	for _, name := range ProfileNames() {
		p, err := s.profile(name)
		if err != nil {
			t.Fatal(err)
		}
		if (p == nil) != (name == mcpserver.NativeProfile) {
			t.Errorf("profile %q is %v", name, p)
		}
	}
	if _, err := s.profile("automat"); !errors.Is(err, sandbox.Invalid) || sandbox.HintOf(err) == "" {
		t.Errorf("an unknown profile: %v, hint %q; want an invalid error with a hint", err, sandbox.HintOf(err))
	}
}
