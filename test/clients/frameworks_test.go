//go:build linux

package clients

import "testing"

// frameworks are libraries for agents. npm/framework.mjs has an agent of each.
func frameworks(binary string) []client {
	var all []client
	for _, f := range []struct{ name, title, module, api string }{
		{"openai-agents", "OpenAI Agents", "@openai/agents", "OpenAI Responses"},
		{"ai-sdk", "AI SDK", "@ai-sdk/mcp", "OpenAI Responses"},
		{"langchain", "LangChain", "@langchain/mcp-adapters", "Anthropic Messages"},
		{"deepagents", "deepagents", "deepagents", "Anthropic Messages"},
		{"mastra", "Mastra", "@mastra/mcp", "OpenAI Chat Completions"},
	} {
		all = append(all, client{
			name: f.name, title: f.title, module: f.module, api: f.api, bare: true,
			command: func(t *testing.T, c conditions) (argv, env []string) {
				env = []string{
					"MODEL=" + c.model, "GLOVEBOX=" + binary, "OPENAI_BASE_URL=" + c.model + "/v1", "OPENAI_API_KEY=scripted",
					"MASTRA_TELEMETRY_DISABLED=1", "LANGSMITH_TRACING=false",
				}
				if c.seconds != "" {
					env = append(env, "TIMEOUT="+c.seconds+"000")
				}
				return []string{modules(t, ".bin/node"), modules(t, "../framework.mjs"), f.name}, env
			},
		})
	}
	return all
}
