package clientconfig

// A Client is an MCP client with a configuration file, or with manual steps if
// it has no file.
type Client struct {
	Name  string // name on the command line
	Title string // the product's name
	// Restart is the step that makes the client load the change.
	Restart string
	// Steps are the manual steps for a client without a file. The placeholders
	// are {url} and {token}.
	Steps string

	user     map[string]string // path of the file by system; "*" is any other
	project  string            // path of the file in a project; "" for none
	programs []string          // programs that show that it is installed
	format   format
	key      string // the member that contains the servers
	local    func(Server) entry
	remote   func(Server, Scope) (e entry, note string, secret bool)
}

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

// Clients returns the table of clients. The facts are from each client's
// documentation.
func Clients() []Client {
	return []Client{
		{
			Name: "claude-desktop", Title: "Claude Desktop", Restart: "restart Claude Desktop",
			user:   perSystem("Claude/claude_desktop_config.json"),
			format: jsonc{}, key: "mcpServers", local: command,
		},
		{
			Name: "claude-code", Title: "Claude Code", Restart: "start a new session",
			user: everywhere("~/.claude.json"), project: ".mcp.json", programs: []string{"claude"},
			format: jsonc{}, key: "mcpServers", local: typed(command),
			remote: atURL(field{"type", "http"}, "url", "${"+TokenVariable+"}"),
		},
		{
			Name: "cursor", Title: "Cursor", Restart: "switch it on in Settings, MCP",
			user: everywhere("~/.cursor/mcp.json"), project: ".cursor/mcp.json", programs: []string{"cursor"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{}, "url", "${env:"+TokenVariable+"}"),
		},
		{
			Name: "vscode", Title: "Visual Studio Code", Restart: "start it with MCP: List Servers",
			user: perSystem("Code/User/mcp.json"), project: ".vscode/mcp.json", programs: []string{"code"},
			format: jsonc{}, key: "servers", local: typed(command),
			remote: atURL(field{"type", "http"}, "url", "${env:"+TokenVariable+"}"),
		},
		{
			Name: "windsurf", Title: "Windsurf", Restart: "press Refresh in its MCP panel",
			user: everywhere("~/.codeium/windsurf/mcp_config.json"), programs: []string{"windsurf"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{}, "serverUrl", ""),
		},
		{
			Name: "codex", Title: "Codex", Restart: "start a new session",
			user: everywhere("$CODEX_HOME/config.toml"), programs: []string{"codex"},
			format: toml{}, key: "mcp_servers", local: command,
			remote: func(s Server, _ Scope) (entry, string, bool) {
				e := entry{{"url", s.URL}}
				if s.Token == "" {
					return e, "", false
				}
				return append(e, field{"bearer_token_env_var", TokenVariable}), exportNote, false
			},
		},
		{
			Name: "gemini", Title: "Gemini CLI", Restart: "start a new session",
			user: everywhere("~/.gemini/settings.json"), project: ".gemini/settings.json", programs: []string{"gemini"},
			format: jsonc{}, key: "mcpServers", local: command,
			remote: atURL(field{"type", "http"}, "url", "$"+TokenVariable),
		},
		{
			Name: "cline", Title: "Cline", Restart: "press Refresh in its MCP panel",
			user:   perSystem("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
			format: jsonc{}, key: "mcpServers",
			local:  command,
			remote: atURL(field{"type", "streamableHttp"}, "url", ""),
		},
		{
			Name: "n8n", Title: "n8n",
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

func typed(f func(Server) entry) func(Server) entry {
	return func(s Server) entry { return append(entry{{"type", "stdio"}}, f(s)...) }
}

const exportNote = "set " + TokenVariable + " to the token where the client is started"

// atURL returns a function that makes entries for servers at a URL, with the URL
// under key and after the field kind. A project's file gets reference instead of
// the token.
func atURL(kind field, key, reference string) func(Server, Scope) (entry, string, bool) {
	return func(s Server, scope Scope) (e entry, note string, secret bool) {
		if kind.key != "" {
			e = append(e, kind)
		}
		e = append(e, field{key, s.URL})
		if s.Token == "" {
			return e, "", false
		}
		token := s.Token
		if scope == Project {
			token, note = reference, exportNote
		}
		return append(e, field{"headers", entry{{"Authorization", "Bearer " + token}}}), note, scope == User
	}
}
