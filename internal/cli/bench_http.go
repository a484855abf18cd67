package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A benchClient calls a server in this process by MCP over HTTP, on a persistent
// connection.
type benchClient struct {
	url, token string
	http       http.Client
	cancel     context.CancelFunc
	served     chan error
}

// serveBench serves sys on a free port of this machine, and returns a client.
func serveBench(ctx context.Context, sys *app.System) (*benchClient, error) {
	token, err := sys.FirstToken(ctx, true)
	if err != nil {
		return nil, err
	}
	lns, err := sys.Listen(ctx)
	if err != nil {
		return nil, err
	}
	c := &benchClient{url: "http://" + lns.MCP.Addr().String() + "/mcp", token: token, served: make(chan error, 1)}
	ctx, c.cancel = context.WithCancel(ctx)
	ready := make(chan struct{})
	go func() { c.served <- sys.ServeHTTP(ctx, lns, func() error { close(ready); return nil }) }()
	select {
	case <-ready:
		return c, nil
	case err := <-c.served:
		c.cancel()
		return nil, err
	}
}

// close stops the server.
func (c *benchClient) close() error {
	c.http.CloseIdleConnections()
	c.cancel()
	return <-c.served
}

// benchProtocol is the version of MCP whose requests need no session.
const benchProtocol = "2026-07-28"

// tool calls a tool, and returns the sandbox ID in its answer.
func (c *benchClient) tool(ctx context.Context, name string, arguments map[string]any) (sandboxID string, err error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": name, "arguments": arguments, "_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    benchProtocol,
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		},
	}})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + c.token,
		"Mcp-Protocol-Version": benchProtocol, "Mcp-Method": "tools/call", "Mcp-Name": name,
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

// RunCode implements [bench.Caller].
func (c *benchClient) RunCode(ctx context.Context, id, code string) (string, error) {
	arguments := map[string]any{"code": code}
	if id != "" {
		arguments["sandbox_id"] = id
	}
	return c.tool(ctx, "run_code", arguments)
}

// Stop implements [bench.Caller].
func (c *benchClient) Stop(ctx context.Context, id string) error {
	_, err := c.tool(ctx, "stop_sandbox", map[string]any{"sandbox_id": id})
	return err
}

// closeBench is close with a timeout, for defer statements.
func closeBench(c *benchClient, err *error) {
	done := make(chan error, 1)
	go func() { done <- c.close() }()
	select {
	case closeErr := <-done:
		*err = errors.Join(*err, closeErr)
	case <-time.After(cleanupTime):
		*err = errors.Join(*err, fmt.Errorf("the server did not end in time"))
	}
}
