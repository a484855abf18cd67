package cli

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	for _, tt := range []struct{ name, args, env, want string }{
		{"glovebox", "mcp", "", "mcp"},
		{"glovebox", "mcp --profile e2b --tools x", "", "mcp --profile e2b --tools x"},
		{"glovebox", "run -c 1 --port 3", "", "run -c 1 --port 3"},
		{"/opt/x/code-sandbox-mcp", "", "", "mcp --profile automata"},
		{"code-sandbox-mcp.exe", "-no-update", "", "mcp --profile automata"},
		{"code-sandbox-mcp", "--no-update=true --allow-dir /x", "", "mcp --profile automata --allow-dir /x"},
		{"code-sandbox-mcp", "-transport stdio", "", "mcp --profile automata"},
		{"code-sandbox-mcp", "-transport=sse", "", "serve --profile automata --listen 127.0.0.1:9520"},
		{"code-sandbox-mcp", "--transport sse -port 9000 --no-update", "", "serve --profile automata --listen 127.0.0.1:9000"},
		{"code-sandbox-mcp", "-transport carrier-pigeon", "", "mcp --profile automata --transport carrier-pigeon"},
		{"code-sandbox-mcp", "-install", "", "install claude-desktop -- --profile automata"},
		{"code-sandbox-mcp", "--help", "", "mcp --profile automata --help"},
		{"glovebox", "mcp --profile automata -no-update", "", "mcp --profile automata"},
		{"glovebox", "mcp --profile=automata --transport sse", "", "serve --profile automata --listen 127.0.0.1:9520"},
		{"glovebox", "mcp -no-update", "automata", "mcp --profile automata"},
		{"./mcp-server", "", "", "serve --profile code-runner"},
		{"mcp-code-sandbox", "--listen :1", "", "serve --profile code-runner --listen :1"},
		{"mcp-docker-interpreter", "", "", "mcp --profile interpreter"},
	} {
		getenv := func(name string) string { return map[string]string{"GLOVEBOX_PROFILE": tt.env}[name] }
		got := strings.Join(expand(tt.name, strings.Fields(tt.args), getenv), " ")
		if got != tt.want {
			t.Errorf("%s %s (GLOVEBOX_PROFILE=%s): %q; want %q", tt.name, tt.args, tt.env, got, tt.want)
		}
	}
}
