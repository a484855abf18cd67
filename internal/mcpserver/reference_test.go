package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/client"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/prompts"
)

// TestReference keeps docs/reference/tools.md in step with what clients get.
// What is not in a schema is in testdata/reference.md.
func TestReference(t *testing.T) {
	s, _ := newTestServer(t, withFiles)
	words, err := os.ReadFile(filepath.Join("testdata", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	var tools, resources strings.Builder
	for _, tool := range s.tools() {
		writeTool(t, &tools, tool)
	}
	list, err := serveStdio(t, s, nil).ListResourceTemplates(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.ResourceTemplates, func(a, b *mcp.ResourceTemplate) int { return strings.Compare(a.URITemplate, b.URITemplate) })
	resources.WriteString("| resource | what it is |\n|---|---|\n")
	for _, r := range list.ResourceTemplates {
		fmt.Fprintf(&resources, "| `%s` | %s |\n", r.URITemplate, r.Description)
	}
	want := strings.NewReplacer(
		"<!-- tools -->\n", strings.TrimPrefix(tools.String(), "\n"),
		"<!-- resources -->\n", resources.String(),
		"<!-- prompts -->\n", promptTable(),
		"<!-- clients -->\n", clientTable(),
		"<!-- instructions -->\n", "```text\n"+instructions+"\n```\n",
	).Replace(string(words))

	path := filepath.Join("..", "..", "docs", "reference", "tools.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not in step; run this test with -update (-want +got):\n%s", path, diff)
	}
}

// promptTable returns the prompts and their arguments.
func promptTable() string {
	var b strings.Builder
	b.WriteString("| prompt | purpose | arguments |\n|---|---|---|\n")
	for _, p := range prompts.All() {
		var arguments []string
		for _, a := range p.Definition.Arguments {
			text := fmt.Sprintf("`%s`: %s", a.Name, a.Description)
			if a.Required {
				text = fmt.Sprintf("`%s` (required): %s", a.Name, a.Description)
			}
			arguments = append(arguments, text)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Definition.Name, p.Definition.Description, strings.Join(arguments, "; "))
	}
	return b.String()
}

// clientTable returns the rows of package client.
func clientTable() string {
	var b strings.Builder
	b.WriteString("| client | a call waits | what differs | evidence |\n|---|---|---|---|\n")
	for _, c := range client.Table() {
		var differs []string
		if c.WaitsForProgress {
			differs = append(differs, fmt.Sprintf("a call with a progress token waits %.0f s", client.MaxWait.Seconds()))
		}
		if c.TextOnly {
			differs = append(differs, "gets `content` alone, and no output schemas")
		}
		if c.ErrorsLosePictures {
			differs = append(differs, "a run that failed and has pictures is no `isError`")
		}
		if c.ClosesToCancel {
			differs = append(differs, "a closed request ends the run")
		}
		if c.LinksAsText {
			differs = append(differs, "gets links to resources as text")
		}
		fmt.Fprintf(&b, "| `%s` | %.0f s | %s | %s: %s |\n", c.Name, c.Wait(false).Seconds(), strings.Join(differs, "; "), c.Date, c.Evidence)
	}
	return b.String()
}

func writeTool(t *testing.T, b *strings.Builder, tool tool) {
	t.Helper()
	fmt.Fprintf(b, "\n### %s\n\n%s\n\nNeeds the scope `%s`.", tool.name, tool.description, tool.scope)
	switch {
	case tool.readOnly:
		b.WriteString(" Changes nothing.")
	case tool.destructive:
		b.WriteString(" Destructive: it loses data, or weakens the isolation.")
	}
	if tool.idempotent {
		b.WriteString(" May be repeated.")
	}
	b.WriteString("\n\n")
	var s documented
	if err := json.Unmarshal([]byte(tool.input), &s); err != nil {
		t.Fatal(err)
	}
	names := propertyNames(t, tool.input)
	if len(names) == 0 {
		b.WriteString("No arguments.\n")
	} else {
		b.WriteString("| argument | type | |\n|---|---|---|\n")
	}
	for _, name := range names {
		about := s.Properties[name].Description
		if slices.Contains(s.Required, name) {
			about = strings.TrimSuffix("required; "+about, "; ")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, s.Properties[name].kind(), about)
	}
	switch tool.output {
	case "":
	case runOutput:
		b.WriteString("\nGives a run.\n")
	default:
		fmt.Fprintf(b, "\n`structuredContent` has `%s`.\n", strings.Join(propertyNames(t, tool.output), "`, `"))
	}
}

// documented is what a schema tells people.
type documented struct {
	Type        string                 `json:"type"`
	Description string                 `json:"description"`
	Properties  map[string]*documented `json:"properties"`
	Required    []string               `json:"required"`
	Enum        []string               `json:"enum"`
	Minimum     *float64               `json:"minimum"`
	Maximum     *float64               `json:"maximum"`
	Items       *documented            `json:"items"`
	AnyOf       []*documented          `json:"anyOf"`
}

// kind is a type as one says it.
func (d *documented) kind() string {
	switch {
	case len(d.AnyOf) > 0:
		var kinds []string
		for _, a := range d.AnyOf {
			kinds = append(kinds, a.kind())
		}
		return strings.Join(kinds, " or ")
	case len(d.Enum) > 0:
		return "`" + strings.Join(d.Enum, "` or `") + "`"
	case d.Items != nil:
		return "list of " + d.Items.kind() + "s"
	case d.Type == "object":
		return "object of strings"
	}
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	switch {
	case d.Minimum != nil && d.Maximum != nil:
		return d.Type + ", " + number(*d.Minimum) + " to " + number(*d.Maximum)
	case d.Minimum != nil:
		return d.Type + ", at least " + number(*d.Minimum)
	}
	return d.Type
}

// propertyNames returns a schema's properties in the order in which they are
// written.
func propertyNames(t *testing.T, schema string) []string {
	t.Helper()
	var s struct {
		Properties json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(s.Properties))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name.(string))
		if err := dec.Decode(new(any)); err != nil {
			t.Fatal(err)
		}
	}
	return names
}
