package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An HTTPCaller is a [Caller] of a server by MCP over HTTP, on persistent
// connections. It can be used by several goroutines.
type HTTPCaller struct {
	// URL is the address of MCP on the server, and Token the bearer token for it.
	URL, Token string
	http       http.Client
}

// Close closes the idle connections.
func (c *HTTPCaller) Close() { c.http.CloseIdleConnections() }

// protocolVersion is the version of MCP whose requests need no session.
const protocolVersion = "2026-07-28"

// tool calls a tool, and returns the sandbox ID in its answer.
func (c *HTTPCaller) tool(ctx context.Context, name string, arguments map[string]any) (sandboxID string, err error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": name, "arguments": arguments, "_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    protocolVersion,
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		},
	}})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + c.Token,
		"Mcp-Protocol-Version": protocolVersion, "Mcp-Method": "tools/call", "Mcp-Name": name,
	} {
		req.Header.Set(k, v)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if i := bytes.LastIndex(text, []byte("data: ")); i >= 0 {
		text = text[i+len("data: "):] // the answer is the last message
	}
	var answer struct {
		Result struct {
			IsError    bool `json:"isError"`
			Structured struct {
				SandboxID string `json:"sandbox_id"`
			} `json:"structuredContent"`
		} `json:"result"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Error != nil || answer.Result.IsError {
		return answer.Result.Structured.SandboxID, sandbox.Errorf(sandbox.Unavailable, "%s over HTTP: %.300s", name, text)
	}
	return answer.Result.Structured.SandboxID, nil
}

// RunCode implements [Caller].
func (c *HTTPCaller) RunCode(ctx context.Context, id, code string) (string, error) {
	arguments := map[string]any{"code": code}
	if id != "" {
		arguments["sandbox_id"] = id
	}
	return c.tool(ctx, "run_code", arguments)
}

// Stop implements [Caller].
func (c *HTTPCaller) Stop(ctx context.Context, id string) error {
	_, err := c.tool(ctx, "stop_sandbox", map[string]any{"sandbox_id": id})
	return err
}
