package clientconfig

import "strings"

// A Client is an MCP client with a configuration file, or with manual steps if
// it has no file.
type Client struct {
	Name  string // name on the command line
	Title string // the product's name
	// Restart is the step that makes the client load a new entry. Unload is the step
	// after a removal, if it is another one.
	Restart, Unload string
	// SignIn is the step that signs in at a server at a URL, or "" if it is not known.
	// The placeholder {name} is the name of the server.
	SignIn string
	// Steps are the manual steps for a client without a file. The placeholders
	// are {url}, {token}, {command} and {json}.
	Steps string
	// Source is the page of the client's documentation about MCP servers, and Read is
	// the date on which the row was collected, as YYYY-MM-DD.
	Source, Read string
	// Run means that tests run the client with the entry that install writes.
	Run bool

	user      map[string]string // path of the file by system; "*" is any other
	project   string            // path of the file in a project; "" for none
	alternate string            // another name of the file, used if only that one exists
	programs  []string          // programs that show that it is installed
	check     []string          // the client's own command that lists its servers
	format    format
	key       string // the member that contains the servers
	local     func(Server) entry
	remote    func(Server, Scope) (e entry, note string, secret bool)
	approve   field // makes the client call all tools of the server without asking
}

// Remote reports whether the client can use a server at a URL.
func (c Client) Remote() bool { return c.remote != nil }

// SignInStep returns the step that signs in at the server of that name.
func (c Client) SignInStep(name string) string {
	if c.SignIn == "" {
		return c.Title + " has to support OAuth; if it does not, run this again with a token"
	}
	return "to sign in, " + strings.ReplaceAll(c.SignIn, "{name}", name)
}

// Approves reports whether an entry can make the client call all tools of the server
// without asking its user.
func (c Client) Approves() bool { return c.approve.key != "" }

// ByHand reports whether the client must be configured by hand.
func (c Client) ByHand() bool { return c.Steps != "" }

// Directories that several clients use.
const (
	macSupport = "~/Library/Application Support/"
	xdg        = "$XDG_CONFIG_HOME/"
	appData    = "$APPDATA/"
)

func everywhere(place string) map[string]string { return map[string]string{"*": place} }

// perSystem returns the paths of a file in each system's standard directory.
func perSystem(rest string) map[string]string {
	return map[string]string{"darwin": macSupport + rest, "windows": appData + rest, "*": xdg + rest}
}

// Clients returns the table of clients.
func Clients() []Client {
	return []Client{
		{
			Name: "claude-desktop", Title: "Claude Desktop", Restart: "restart Claude Desktop",
			Source: "https://modelcontextprotocol.io/docs/develop/connect-local-servers", Read: "2026-11-23",
			user:   perSystem("Claude/claude_desktop_config.json"),
			format: jsonc{}, key: "mcpServers", local: command,
		},
		{
			Name: "claude-code", Title: "Claude Code", Restart: "start a new session",
			SignIn: "choose {name} in /mcp",
			Source: "https://code.claude.com/docs/en/mcp", Read: "2026-11-23", Run: true,
			user: everywhere("~/.claude.json"), project: ".mcp.json", programs: []string{"claude"},
			check:  []string{"claude", "mcp", "list"},
			format: jsonc{}, key: "mcpServers", local: typed("stdio", command),
			remote: atURL(field{"type", "http"}, "url", "${"+TokenVariable+"}"),
		},
		{
			Name: "cursor", Title: "Cursor", Restart: "switch it on in Settings, MCP", Unload: "restart Cursor",
			SignIn: "press the login of {name} in Settings, MCP",
			Source: "https://cursor.com/docs/context/mcp", Read: "2026-11-23",
			user: everywhere("~/.cursor/mcp.json"), project: ".cursor/mcp.json", programs: []string{"cursor", "cursor-agent"},
			check:  []string{"cursor-agent", "mcp", "list"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{}, "url", "${env:"+TokenVariable+"}"),
		},
		{
			Name: "vscode", Title: "Visual Studio Code", Restart: "start it with MCP: List Servers", Unload: "reload its window",
			SignIn: "follow its question when it starts the server",
			Source: "https://code.visualstudio.com/docs/copilot/customization/mcp-servers", Read: "2026-11-23",
			user: perSystem("Code/User/mcp.json"), project: ".vscode/mcp.json", programs: []string{"code"},
			format: jsonc{}, key: "servers", local: typed("stdio", command),
			remote: atURL(field{"type", "http"}, "url", "${env:"+TokenVariable+"}"),
		},
		{
			Name: "windsurf", Title: "Windsurf", Restart: "press Refresh in its MCP panel",
			Source: "https://docs.windsurf.com/windsurf/cascade/mcp", Read: "2026-11-23",
			user: everywhere("~/.codeium/windsurf/mcp_config.json"), programs: []string{"windsurf"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{}, "serverUrl", ""),
		},
		{
			Name: "codex", Title: "Codex", Restart: "start a new session",
			SignIn: "run codex mcp login {name}",
			Source: "https://developers.openai.com/codex/mcp", Read: "2026-11-23", Run: true,
			user: everywhere("$CODEX_HOME/config.toml"), programs: []string{"codex"},
			check:  []string{"codex", "mcp", "list"},
			format: toml{}, key: "mcp_servers", local: command,
			remote:  codexAtURL,
			approve: field{"default_tools_approval_mode", "approve"},
		},
		{
			Name: "gemini", Title: "Gemini CLI", Restart: "start a new session",
			SignIn: "type /mcp auth {name}",
			Source: "https://geminicli.com/docs/tools/mcp-server", Read: "2026-11-23", Run: true,
			user: everywhere("~/.gemini/settings.json"), project: ".gemini/settings.json", programs: []string{"gemini"},
			check:  []string{"gemini", "mcp", "list"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{"type", "http"}, "url", "$"+TokenVariable),
		},
		{
			Name: "cline", Title: "Cline (VS Code)", Restart: "press Refresh in its MCP panel",
			Source: "https://docs.cline.bot/mcp/configuring-mcp-servers", Read: "2026-11-23",
			user:   perSystem("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
			format: jsonc{}, key: "mcpServers",
			local:  command,
			remote: atURL(field{"type", "streamableHttp"}, "url", ""),
		},
		{
			Name: "cline-cli", Title: "Cline CLI", Restart: "start a new session",
			Source: "https://docs.cline.bot/mcp/configuring-mcp-servers", Read: "2026-11-23",
			user: everywhere("~/.cline/data/settings/cline_mcp_settings.json"), programs: []string{"cline"},
			format: jsonc{}, key: "mcpServers",
			local:  command,
			remote: atURL(field{"type", "streamableHttp"}, "url", ""),
		},
		{
			Name: "opencode", Title: "opencode", Restart: "start a new session",
			SignIn: "run opencode mcp auth {name}",
			Source: "https://opencode.ai/docs/mcp-servers", Read: "2026-11-23",
			user: everywhere("$XDG_CONFIG_HOME/opencode/opencode.json"), project: "opencode.json", alternate: "opencode.jsonc", programs: []string{"opencode"},
			check:  []string{"opencode", "mcp", "list"},
			format: jsonc{}, key: "mcp",
			local: func(s Server) entry {
				return entry{{"type", "local"}, {"command", append([]string{s.Command}, s.Args...)}, {"enabled", true}}
			},
			remote: atURL(field{"type", "remote"}, "url", "{env:"+TokenVariable+"}"),
		},
		{
			Name: "qwen", Title: "Qwen Code", Restart: "start a new session",
			Source: "https://qwenlm.github.io/qwen-code-docs/en/users/features/mcp", Read: "2026-11-23",
			user: everywhere("~/.qwen/settings.json"), project: ".qwen/settings.json", programs: []string{"qwen"},
			check:  []string{"qwen", "mcp", "list"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{}, "httpUrl", "$"+TokenVariable),
		},
		{
			Name: "copilot", Title: "GitHub Copilot CLI", Restart: "start a new session",
			Source: "https://docs.github.com/en/copilot/how-tos/use-copilot-agents/use-copilot-cli", Read: "2026-11-23",
			user: everywhere("$COPILOT_HOME/mcp-config.json"), programs: []string{"copilot"},
			check:  []string{"copilot", "mcp", "list"},
			format: jsonc{}, key: "mcpServers", local: allTools(typed("local", command)),
			remote: func(s Server, scope Scope) (entry, string, bool) {
				e, note, secret := atURL(field{"type", "http"}, "url", "${"+TokenVariable+"}")(s, scope)
				return append(e, field{"tools", []string{"*"}}), note, secret
			},
		},
		{
			Name: "continue", Title: "Continue", Restart: "reload the window, or start a new session of cn",
			Source: "https://docs.continue.dev/customize/deep-dives/mcp", Read: "2026-11-23",
			user: everywhere("~/.continue/mcpServers/mcp.json"), programs: []string{"cn"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{"type", "http"}, "url", ""),
		},
		{
			Name: "zed", Title: "Zed", Restart: "see its state in the settings of the agent panel",
			Source: "https://zed.dev/docs/ai/mcp", Read: "2026-11-23",
			user:     map[string]string{"windows": appData + "Zed/settings.json", "darwin": "~/.config/zed/settings.json", "*": xdg + "zed/settings.json"},
			programs: []string{"zed", "zeditor"},
			format:   jsonc{}, key: "context_servers", local: command,
			remote: atURL(field{}, "url", ""),
		},
		{
			Name: "junie", Title: "Junie (JetBrains)", Restart: "switch it on in Settings, Tools, Junie, MCP Settings", Unload: "restart the IDE",
			Source: "https://www.jetbrains.com/help/junie/model-context-protocol-mcp.html", Read: "2026-11-23",
			user: everywhere("~/.junie/mcp/mcp.json"), project: ".junie/mcp/mcp.json", programs: []string{"junie"},
			format: jsonc{}, key: "mcpServers", local: command,
		},
		{
			Name: "lmstudio", Title: "LM Studio", Restart: "switch it on in the Program tab", Unload: "restart LM Studio",
			Source: "https://lmstudio.ai/docs/app/mcp", Read: "2026-11-23",
			user: everywhere("~/.lmstudio/mcp.json"), programs: []string{"lms"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{}, "url", ""),
		},
		{
			Name: "amp", Title: "Amp", Restart: "start a new session",
			Source: "https://ampcode.com/manual", Read: "2026-11-23",
			user: everywhere("~/.config/amp/settings.json"), project: ".amp/settings.json", programs: []string{"amp"},
			check:  []string{"amp", "mcp", "list"},
			format: jsonc{}, key: "amp.mcpServers", local: command,
			remote: atURL(field{}, "url", "${"+TokenVariable+"}"),
		},
		{
			Name: "warp", Title: "Warp", Restart: "see its state in Settings, Agents, MCP servers",
			Source: "https://docs.warp.dev/agent-platform/capabilities/mcp", Read: "2026-11-23",
			user: everywhere("~/.warp/.mcp.json"), programs: []string{"warp", "warp-terminal"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{}, "url", ""),
		},
		{
			Name: "jetbrains", Title: "JetBrains AI Assistant",
			Source: "https://www.jetbrains.com/help/ai-assistant/mcp.html", Read: "2026-11-23",
			Steps: `1. Open Settings, Tools, AI Assistant, Model Context Protocol (MCP).
2. Press Add, choose JSON, and paste this:
{json}
3. Press OK, then Apply.
`,
		},
		{
			Name: "goose", Title: "Goose",
			Source: "https://block.github.io/goose/docs/guides/config-files", Read: "2026-11-23",
			Steps: `1. Run: goose configure
2. Choose Add Extension.
3. For a program: choose Command-line Extension, with the command {command}
   For a server: choose Remote Extension (Streamable HTTP), with the URI {url}
   and the header Authorization: Bearer, followed by the token {token}
4. Choose a timeout of at least 300 seconds.
`,
		},
		{
			Name: "n8n", Title: "n8n",
			Source: "https://docs.n8n.io/integrations/builtin/cluster-nodes/sub-nodes/n8n-nodes-langchain.toolmcp/", Read: "2026-11-23",
			Steps: `1. Add the node "MCP Client Tool" to an AI agent.
2. Endpoint: {url}
3. Server Transport: HTTP Streamable.
4. Authentication: Bearer Auth, with the credential {token}
5. Tools to Include: All.
`,
		},
	}
}

// command returns the entry of a program that the client starts.
func command(s Server) entry {
	return entry{{"command", s.Command}, {"args", append([]string{}, s.Args...)}}
}

func typed(kind string, f func(Server) entry) func(Server) entry {
	return func(s Server) entry { return append(entry{{"type", kind}}, f(s)...) }
}

// allTools adds the list of tools that the client may use: all.
func allTools(f func(Server) entry) func(Server) entry {
	return func(s Server) entry { return append(f(s), field{"tools", []string{"*"}}) }
}

const exportNote = "set " + TokenVariable + " to the token where the client is started"

// codexAtURL returns Codex's entry for a server at a URL. Codex's own way is a
// variable, but without the variable it leaves out the tools and does not say so. So
// the entry has the token itself, unless the user has the variable already.
func codexAtURL(s Server, _ Scope) (entry, string, bool) {
	e := entry{{"url", s.URL}}
	switch {
	case s.Token == "":
		return e, "", false
	case s.Exported:
		return append(e, field{"bearer_token_env_var", TokenVariable}), exportNote, false
	}
	return append(e, field{"http_headers", entry{{"Authorization", "Bearer " + s.Token}}}), "", true
}

// atURL returns a function that makes entries for servers at a URL, with the URL
// under key and after the field kind. A project's file gets reference instead of
// the token.
func atURL(kind field, key, reference string) func(Server, Scope) (entry, string, bool) {
	return func(s Server, scope Scope) (e entry, note string, secret bool) {
		if kind.key != "" {
			e = append(e, kind)
		}
		e = append(e, field{key, s.URL})
		if s.Token == "" && (scope == User || !s.WantsToken) {
			return e, "", false
		}
		token := s.Token
		if scope == Project {
			token, note = reference, exportNote
		}
		return append(e, field{"headers", entry{{"Authorization", "Bearer " + token}}}), note, scope == User
	}
}
