package release

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	repository = "https://github.com/glovebox-dev/glovebox"
	// registryName is the server's name in the registry of MCP servers. The
	// registry ties the name to the owner of the repository.
	registryName = "io.github.glovebox-dev/glovebox"
	summary      = "Runs untrusted code in sealed Linux sandboxes, with nothing to set up."
)

func (r *Release) url(name string) string {
	return repository + "/releases/download/" + r.Version + "/" + name
}

// number returns the version without the v of the git tag.
func (r *Release) number() string { return strings.TrimPrefix(r.Version, "v") }

// bundleName returns the name of a bundle. The registry requires "mcp" in its
// URL.
func bundleName(arch string) string { return "glovebox_" + arch + ".mcpb" }

// bundle returns an MCP bundle, which desktop clients install by a click. It
// contains the programs of all systems for one architecture, because a bundle
// can select by system but not by architecture.
func (r *Release) bundle(platforms []Platform) ([]byte, error) {
	type object = map[string]any
	systems := map[string]string{"linux": "linux", "darwin": "darwin", "windows": "win32"}
	var entries []entry
	var names []string
	overrides := object{}
	for _, p := range platforms {
		program, err := r.program(p)
		if err != nil {
			return nil, err
		}
		path := "server/" + p.OS + "/" + p.program()
		entries = append(entries, entry{path, 0o755, program})
		names = append(names, systems[p.OS])
		overrides[systems[p.OS]] = object{"command": "${__dirname}/" + path}
	}
	first := entries[0].name
	manifest, err := indented(object{
		"manifest_version": "0.3",
		"name":             "glovebox",
		"display_name":     "Glovebox",
		"version":          r.number(),
		"description":      summary,
		"long_description": "Gives the model tools to run code and commands in sandboxes, to keep variables between runs, and to read and write files there. Sandboxes have limits of memory, time, disk and processes. They have no network unless the user allows one. On Linux, the sandboxes are Glovebox's own. On macOS and Windows, they are containers, and Docker or Podman must run.",
		"author":           object{"name": "The Glovebox authors", "url": repository},
		"repository":       object{"type": "git", "url": repository + ".git"},
		"documentation":    repository + "/blob/" + r.Version + "/README.md",
		"support":          repository + "/issues",
		"license":          "MIT",
		"keywords":         []string{"sandbox", "code", "python", "gvisor"},
		"server": object{
			"type":        "binary",
			"entry_point": first,
			"mcp_config": object{
				"command": "${__dirname}/" + first, "args": []string{"mcp"}, "env": object{},
				"platform_overrides": overrides,
			},
		},
		"tools_generated": true,
		"compatibility":   object{"platforms": names},
	})
	if err != nil {
		return nil, err
	}
	license, err := r.read(filepath.Join(r.Source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	entries = append([]entry{{"manifest.json", 0o644, manifest}, {"LICENSE", 0o644, license}}, entries...)
	return packZip(entries, r.Time)
}

// registryEntry returns the entry for the registry of MCP servers.
func (r *Release) registryEntry(sums map[string]string) ([]byte, error) {
	type object = map[string]any
	var packages []object
	for _, arch := range []string{"amd64", "arm64"} {
		if sum, ok := sums[bundleName(arch)]; ok {
			packages = append(packages, object{
				"registryType": "mcpb", "identifier": r.url(bundleName(arch)), "fileSha256": sum,
				"transport": object{"type": "stdio"},
			})
		}
	}
	return indented(object{
		"$schema":     "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
		"name":        registryName,
		"title":       "Glovebox",
		"description": summary,
		"version":     r.number(),
		"repository":  object{"url": repository, "source": "github"},
		"packages":    packages,
	})
}

func indented(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "encode: %w", err)
	}
	return append(text, '\n'), nil
}

var formulaText = template.Must(template.New("formula").Parse(`class Glovebox < Formula
  desc "{{.Summary}}"
  homepage "{{.Home}}"
  version "{{.Version}}"
  license "MIT"
{{range .Systems}}
  on_{{.Name}} do
{{- range .Files}}
    on_{{.Arch}} do
      url "{{.URL}}"
      sha256 "{{.SHA256}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "glovebox"
    generate_completions_from_executable(bin/"glovebox", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/glovebox version")
  end
end
`))

// formula returns Homebrew's formula.
func (r *Release) formula(sums map[string]string) ([]byte, error) {
	type file struct{ Arch, URL, SHA256 string }
	type system struct {
		Name  string
		Files []file
	}
	words := map[string]string{"darwin": "macos", "linux": "linux", "amd64": "intel", "arm64": "arm"}
	var systems []system
	for _, name := range []string{"darwin", "linux"} {
		s := system{Name: words[name]}
		for _, p := range r.Platforms {
			if p.OS == name {
				s.Files = append(s.Files, file{words[p.Arch], r.url(p.archive()), sums[p.archive()]})
			}
		}
		if s.Files != nil {
			systems = append(systems, s)
		}
	}
	var b bytes.Buffer
	err := formulaText.Execute(&b, map[string]any{
		"Summary": strings.TrimSuffix(summary, "."), "Home": repository, "Version": r.number(), "Systems": systems,
	})
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "write the formula: %w", err)
	}
	return b.Bytes(), nil
}
