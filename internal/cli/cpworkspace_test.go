package cli

import "testing"

func TestInWorkspace(t *testing.T) {
	for arg, want := range map[string][2]string{
		"data:f":           {"data", "f"},
		"data:":            {"data", ""},
		"data:/":           {"data", ""},
		"data:/data":       {"data", ""},
		"data:/data/a/b":   {"data", "a/b"},
		"data:database":    {"data", "database"},
		"data:/database/x": {"data", "database/x"},
		"data:a/":          {"data", "a/"},
		"data:../../x":     {"data", "x"},
		"my data:f":        {"my data", "f"},
	} {
		if workspace, name, ok := inWorkspace(arg); !ok || workspace != want[0] || name != want[1] {
			t.Errorf("%q: %q, %q, %v; want %q", arg, workspace, name, ok, want)
		}
	}
	for _, arg := range []string{"file", "./a:b", "/a:b", `.\a:b`, ":x", "sbx_4pr6bf7tlrlkjz7kvmfngmfp6h:f", "sbx4pr6bf7tlrlkjz7kvmfngmfp6h:f"} {
		if workspace, name, ok := inWorkspace(arg); ok {
			t.Errorf("%q is taken for %q in workspace %q", arg, name, workspace)
		}
	}
}
