package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// moduleDir is the directory of a module that go.mod names, with its tests'
// files.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skipf("%s is not here: it is where Go's modules are", module)
	}
	return dir
}

// A vector is a text, and whether it is what its name says.
type vector struct {
	name, text string
	bad        bool
}

// example is one in a document of the specification, which says its type.
var example = regexp.MustCompile("(?ms)^ *```json,title=([^&\n]*)&mediatype=([^\n]*)\n(.*?)^ *```")

// examples returns the specification's own examples of a type.
func examples(t *testing.T, dir, kind string) []vector {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range example.FindAllStringSubmatch(string(text), -1) {
			if strings.ReplaceAll(m[2], "%2B", "+") == kind {
				all = append(all, vector{name: filepath.Base(f) + "/" + m[1], text: m[3]})
			}
		}
	}
	return all
}

// cases returns the texts with which the specification's schema is tested: those
// of a file, each in a field of that name beside one that says whether it fails.
func cases(t *testing.T, dir, file, field string) []vector {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "schema", file), nil, 0)
	if err != nil {
		t.Skip("the module has no tests:", err)
	}
	var all []vector
	ast.Inspect(parsed, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		v := vector{name: fmt.Sprintf("%s/%d", file, len(all))}
		for _, e := range lit.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			key, _ := kv.Key.(*ast.Ident)
			switch value := kv.Value.(type) {
			case *ast.BasicLit:
				if key != nil && key.Name == field {
					v.text, _ = strconv.Unquote(value.Value)
				}
			case *ast.Ident:
				v.bad = v.bad || key != nil && key.Name == "fail" && value.Name == "true"
			}
		}
		if v.text != "" {
			all = append(all, v)
		}
		return true
	})
	return all
}

// TestVectors reads what OCI publishes with its specification: what is right must
// be taken or be refused as something that is no image for here, and what is
// wrong must be refused, unless the mistake is in what nobody here looks at.
func TestVectors(t *testing.T) {
	dir := moduleDir(t, "github.com/opencontainers/image-spec")
	s := newStore(t, nil)
	for _, c := range []struct {
		kind, file, field string
		read              func([]byte) error
	}{
		{"application/vnd.oci.image.manifest.v1+json", "manifest_test.go", "manifest", func(b []byte) error { _, err := s.parseManifest(b); return err }},
		{"application/vnd.oci.image.index.v1+json", "imageindex_test.go", "imageIndex", func(b []byte) error { _, err := choose(b); return err }},
		{"application/vnd.oci.image.config.v1+json", "config_test.go", "config", func(b []byte) error {
			_, err := parseConfig(ours(t, b))
			return err
		}},
	} {
		vectors := append(examples(t, dir, c.kind), cases(t, dir, c.file, c.field)...)
		if len(vectors) < 2 {
			t.Errorf("%s: only %d vectors were found", c.kind, len(vectors))
		}
		for _, v := range vectors {
			err := c.read([]byte(v.text))
			switch why := lenient[v.name]; {
			case err == nil && v.bad && why == "":
				t.Errorf("%s was taken, and is wrong:\n%s", v.name, v.text)
			case err != nil && !v.bad && !errors.Is(err, sandbox.Unsupported):
				t.Errorf("%s was refused, and is right: %v", v.name, err)
			}
		}
	}
}

// lenient are vectors that are wrong, and are taken, each for a reason.
var lenient = map[string]string{
	"manifest_test.go/5":   "an image without layers: engines make them of FROM scratch",
	"imageindex_test.go/4": "the type of what an index names: that of what is fetched counts",
	"imageindex_test.go/5": "the same",
}

// TestSavedVectors loads the archives that go-containerregistry is tested with,
// which docker save and Bazel made.
func TestSavedVectors(t *testing.T) {
	dir := moduleDir(t, "github.com/google/go-containerregistry")
	for file, want := range map[string]string{ // the files of all images, or the error
		"tarball/testdata/test_image_1.tar":                         "bar foo",
		"tarball/testdata/test_image_2.tar":                         "bat baz",
		"tarball/testdata/test_bundle.tar":                          "bar bat baz foo",
		"tarball/testdata/test_link.tar":                            "bar foo test",
		"tarball/testdata/test_load_manifest.tar":                   "bar foo",
		"tarball/testdata/hello-world-v25.tar":                      "error: has no name for its image",
		"tarball/testdata/no_manifest.tar":                          "error: no image",
		"tarball/testdata/null_manifest.tar":                        "error: no image",
		"tarball/testdata/content.tar":                              "error: no image",
		"mutate/testdata/source_image.tar":                          "bar foo",
		"mutate/testdata/source_image_with_empty_layer_history.tar": "bar foo",
		"mutate/testdata/whiteout_image.tar":                        "bar.txt",
		"mutate/testdata/whiteout_dir.tar":                          "a/baz b/bar",
		"mutate/testdata/overwritten_file.tar":                      "bar.txt foo.txt",
	} {
		s := newStore(t, nil)
		list, err := s.Load(t.Context(), filepath.Join(dir, "pkg/v1", file), LoadOptions{})
		if why, ok := strings.CutPrefix(want, "error: "); ok {
			if !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), why) || len(left(t, s)) > 0 {
				t.Errorf("%s: %v, left %q; want an error about %q", file, err, left(t, s), why)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var names []string
		for _, i := range list {
			for name, text := range root(t, s, i.ID) {
				dir, _, _ := strings.Cut(name, "/")
				if text != "/" && dir != "etc" && dir != "tmp" && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has %s, want %s", file, got, want)
		}
	}
}

// ours makes a configuration one for this machine.
func ours(t *testing.T, config []byte) []byte {
	t.Helper()
	var c map[string]any
	if json.Unmarshal(config, &c) != nil {
		return config // one of the wrong ones
	}
	if _, ok := c["architecture"].(string); ok {
		c["architecture"] = runtime.GOARCH
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
