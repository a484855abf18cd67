package mcpserver

import (
	"regexp"
	"strings"
)

// A renamer gives tools their names for clients: Options.ToolPrefix and the name that
// this package uses. It also renames the tools that a text of the server mentions. A
// nil renamer changes nothing.
type renamer struct {
	prefix string
	names  *regexp.Regexp
}

// newRenamer returns the renamer for tools with those names, or nil without a prefix.
func newRenamer(prefix string, tools []tool) *renamer {
	if prefix == "" {
		return nil
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = regexp.QuoteMeta(t.name)
	}
	return &renamer{prefix, regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\b`)}
}

// name returns the name of a tool.
func (r *renamer) name(tool string) string {
	if r == nil {
		return tool
	}
	return r.prefix + tool
}

// text returns a text of the server with the names of tools as clients know them.
func (r *renamer) text(text string) string {
	if r == nil {
		return text
	}
	return r.names.ReplaceAllString(text, strings.ReplaceAll(r.prefix, "$", "$$")+"${1}")
}
