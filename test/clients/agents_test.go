//go:build linux

package clients

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A client is a program from npm that a scripted model drives.
type client struct {
	name, title string
	module      string // of npm
	api         string // by which it asks its model
	install     string // its name for glovebox install; empty for a framework
	bare        bool   // it may name a tool as the server does
	// command prepares the home directory and returns the command, and its
	// environment besides everybody's.
	command func(t *testing.T, c conditions) (argv, env []string)
}

// conditions are what a conversation runs under.
type conditions struct {
	home, model string
	url, token  string // of the server over HTTP; empty for stdio
	seconds     string // after which the client gives up a call; empty for its default
	// interrupt, if not nil, is called before the client starts. It may interrupt the
	// client, as its user would, and returns a function that waits for that.
	interrupt func(m *model, client func() error) (wait func())
}

// agents are the programs that a person uses.
func agents() []client {
	return []client{
		{
			name: "codex", title: "Codex", module: "@openai/codex", api: "OpenAI Responses", install: "codex",
			command: func(t *testing.T, c conditions) (argv, env []string) {
				config := `model = "gpt-5"
model_provider = "scripted"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "` + c.model + `/v1"
wire_api = "responses"
`
				file := filepath.Join(c.home, ".codex", "config.toml")
				// Codex waits for a required server, however busy the machine is.
				table := "[mcp_servers.glovebox]\n"
				settings := table + "required = true\nstartup_timeout_sec = 240\n"
				if c.seconds != "" {
					settings += "tool_timeout_sec = " + c.seconds + "\n"
				}
				writeFile(t, file, config+"\n"+strings.Replace(readFile(t, file), table, settings, 1))
				return []string{modules(t, ".bin/codex"), "exec", "--skip-git-repo-check", "Follow the script."}, nil
			},
		},
		{
			name: "claude-code", title: "Claude Code", module: "@anthropic-ai/claude-code", api: "Anthropic Messages", install: "claude-code",
			command: func(t *testing.T, c conditions) (argv, env []string) {
				env = []string{
					"ANTHROPIC_BASE_URL=" + c.model, "ANTHROPIC_API_KEY=sk-ant-scripted", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
					"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "MCP_CONNECTION_NONBLOCKING=0", "MCP_TIMEOUT=240000",
				}
				if c.seconds != "" {
					env = append(env, "MCP_TOOL_TIMEOUT="+c.seconds+"000")
				}
				return []string{
					modules(t, "@anthropic-ai/claude-code-linux-"+nodeArch()+"/claude"), "-p", "Follow the script.",
					"--allowedTools", "mcp__glovebox",
				}, env
			},
		},
		{
			name: "gemini", title: "Gemini CLI", module: "@google/gemini-cli", api: "Gemini", install: "gemini",
			command: func(t *testing.T, c conditions) (argv, env []string) {
				file := filepath.Join(c.home, ".gemini", "settings.json")
				var settings map[string]any
				if err := json.Unmarshal([]byte(readFile(t, file)), &settings); err != nil {
					t.Fatal(err)
				}
				if c.seconds != "" {
					entry := settings["mcpServers"].(map[string]any)["glovebox"].(map[string]any)
					entry["timeout"] = json.Number(c.seconds + "000")
				}
				settings["security"] = map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}}
				settings["privacy"] = map[string]any{"usageStatisticsEnabled": false}
				settings["general"] = map[string]any{"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true}
				writeFile(t, file, compactJSON(settings))
				return []string{
						modules(t, ".bin/node"), modules(t, "@google/gemini-cli/bundle/gemini.js"),
						"--approval-mode", "yolo", "-m", "gemini-2.5-pro", "-p", "Follow the script.",
					},
					[]string{"GEMINI_API_KEY=scripted", "GOOGLE_GEMINI_BASE_URL=" + c.model, "GEMINI_CLI_TRUST_WORKSPACE=true"}
			},
		},
	}
}

// nodeArch is the name of this architecture in the names of npm's modules.
func nodeArch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

// modules returns the path of a file below node_modules.
func modules(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(filepath.Join("npm", "node_modules", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
