// Package resultview has the view of a run's result that MCP clients with the extension
// MCP Apps show: one HTML page without anything from elsewhere. [Add] offers it as a
// resource, and [Meta] names it to the tools that it is for. Its page is made once, and
// all functions are safe for concurrent use.
package resultview

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/webmodule"
)

const (
	// URI names the page.
	URI = "ui://glovebox/result.html"
	// MIMEType is the type of the page in the extension.
	MIMEType = "text/html;profile=mcp-app"

	// maxResultChars is what Claude Code may show its model of a long result. Without
	// the hint, it showed the first 2 KB of a long result. With this value, it showed
	// its model 67,202 characters (2.1.330, 2026-11-23). It accepts up to 500,000.
	maxResultChars = 200_000
)

var (
	//go:embed view.js
	script string
	//go:embed view.css
	style string
)

// Page is the whole page. Hosts show it in a frame without an origin, whose policy
// allows scripts and styles in the page, and no connections.
var Page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Result</title>
<style>
` + style + `</style>
</head>
<body>
<script type="module">
` + plain(webmodule.Chart) + plain(webmodule.Table) + script + `</script>
</body>
</html>
`

// plain returns a module as a part of another: its names are scoped, except those that
// it exports.
func plain(module string) string {
	var names []string
	for line := range strings.Lines(module) {
		if rest, ok := strings.CutPrefix(line, "export function "); ok {
			name, _, _ := strings.Cut(rest, "(")
			names = append(names, name)
		}
	}
	list := strings.Join(names, ", ")
	return "const { " + list + " } = (() => {\n" + strings.ReplaceAll(module, "export function ", "function ") + "return { " + list + " };\n})();\n"
}

// Add offers the page as a resource.
func Add(s *mcp.Server) {
	s.AddResource(&mcp.Resource{URI: URI, Name: "result-view", Title: "The view of a result", MIMEType: MIMEType},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: URI, MIMEType: MIMEType, Text: Page, Meta: mcp.Meta{"ui": map[string]any{"prefersBorder": true}}}}}, nil
		})
}

// Meta returns the hints of a tool for clients, or nil. Claude Code has a main tool in
// the model's context always, even if other tools must be searched for, and shows its
// model more of a long result. A caller that raises output_bytes or limit gets what it
// asked for. Clients with MCP Apps show the results of runs in the view.
func Meta(tool string, main, long bool) mcp.Meta {
	m := mcp.Meta{}
	if main {
		m["anthropic/alwaysLoad"] = true
	}
	if long {
		m["anthropic/maxResultSizeChars"] = maxResultChars
	}
	if slices.Contains([]string{"run_code", "run_command", "get_run"}, tool) {
		m["ui"] = map[string]any{"resourceUri": URI}
	}
	if len(m) == 0 {
		return nil
	}
	return m
}
