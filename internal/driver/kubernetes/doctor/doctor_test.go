package doctor

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// object returns the first object of a manifest.
func object(t *testing.T, name string) string {
	t.Helper()
	text, err := manifests.ReadFile("manifests/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "---\n")
	return first
}

// TestRole checks that the Role has the rights that the doctor asks for.
func TestRole(t *testing.T) {
	var role struct {
		Rules []struct{ Resources, Verbs []string }
	}
	if err := yaml.Unmarshal([]byte(object(t, "role")), &role); err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				has[verb+" "+resource] = true
			}
		}
	}
	for _, r := range needed {
		for verb := range strings.FieldsSeq(r[0]) {
			if what := strings.TrimSuffix(verb+" "+r[1]+"/"+r[2], "/"); !has[what] {
				t.Errorf("the Role has no right to %s", what)
			}
		}
	}
}

// TestGuide checks that the guide shows the objects that doctor --fix prints.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../../../docs/guides/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"namespace", "networkpolicy", "role"} {
		if text := strings.ReplaceAll(object(t, name), "NAMESPACE", "glovebox-sandboxes"); !strings.Contains(string(guide), text) {
			t.Errorf("docs/guides/kubernetes.md does not have\n%s", text)
		}
	}
}
