// Package client knows how programs that speak MCP treat the calls and results of a
// server, where that differs from the specification.
//
// Only package mcpserver imports it. It is a table, by the name that a client gives
// itself in clientInfo. Each row has its evidence; a client without a row gets what
// the specification says.
package client

import (
	"strings"
	"time"
)

// DefaultWait is how long a call may take in a client that the table does not know.
// It is below one minute, the timeout of the SDKs for TypeScript.
const DefaultWait = 50 * time.Second

// A Client is how a program treats calls and results.
type Client struct {
	// Name is the name in clientInfo. A name with more words after it, such as
	// NAME-SERVER, is the same client.
	Name string
	// Waits is how long the client is known to wait for the answer to a call, less a
	// margin. Zero is [DefaultWait].
	Waits time.Duration
	// WaitsForProgress says that each progress notification restarts the client's
	// timeout, so that a call with a progress token may last.
	WaitsForProgress bool
	// ClosesToCancel says that the client closes the request of a call, or its stream,
	// only if its user cancels the call or the client ends. The run of such a call ends.
	ClosesToCancel bool
	// TextOnly says that the client passes structuredContent alone to its model,
	// without pictures. Such a client gets results without structuredContent, and
	// tools without an output schema: the text says the same.
	TextOnly bool
	// ErrorsLosePictures says that the client drops the pictures of a result with
	// isError. A run that failed and has pictures is then a result without isError;
	// its verdict says how it ended.
	ErrorsLosePictures bool
	// LinksAsText says that a link to a resource in a result harms the client. It then gets the
	// link's name and URI as text.
	LinksAsText bool

	// Evidence says which version was looked at and how; Date is when.
	Evidence, Date string
}

// MaxWait is how long the call of a client that waits for progress may take.
const MaxWait = 10 * time.Minute

// table has a row for each client that differs.
var table = []Client{
	{
		Name: "claude-code", Waits: 110 * time.Second, ClosesToCancel: true, ErrorsLosePictures: true, Date: "2026-11-26",
		Evidence: "2.1.330, run with a scripted model: a call of 120 s came back over HTTP; over HTTP it closes the request of a call at an interrupt, " +
			"and after its timeout, which its user must set to less than calls take; a result with isError reached the model as text without its pictures",
	},
	{
		Name: "codex-mcp-client", Waits: 110 * time.Second, TextOnly: true, Date: "2026-11-23",
		Evidence: "0.169.0, run with a scripted model: a call of 120 s came back; with structuredContent the model got its JSON alone, without it text and pictures",
	},
	{
		Name: "gemini-cli-mcp-client", Waits: 9 * time.Minute, Date: "2026-11-23",
		Evidence: "0.61.0, run with a scripted model: a call of 120 s came back; its source sets a timeout of 10 minutes for each server (MCP_DEFAULT_TIMEOUT_MSEC)",
	},
	{
		Name: "ai-sdk-mcp-client", Waits: 110 * time.Second, Date: "2026-11-23",
		Evidence: "@ai-sdk/mcp 2.0.99, run with a scripted model: a call of 120 s came back over HTTP",
	},
	{
		Name: "@langchain/mcp-adapters", LinksAsText: true, Date: "2026-11-26",
		Evidence: "1.1.4, run with a scripted model: it makes a content block of a file from a link, and the model class for Anthropic's API " +
			"ended the agent with \"Unsupported file mime type for file url source: text/csv\"",
	},
}

// Table returns the rows.
func Table() []Client { return table }

// Of returns the client with a name in clientInfo, or the standard client.
func Of(name string) Client {
	for _, c := range table {
		if rest, ok := strings.CutPrefix(name, c.Name); ok && (rest == "" || rest[0] == '-') {
			return c
		}
	}
	return Client{}
}

// Wait returns how long a call may take in the client. progress says that the call
// has a progress token.
func (c Client) Wait(progress bool) time.Duration {
	switch {
	case c.WaitsForProgress && progress:
		return MaxWait
	case c.Waits > 0:
		return c.Waits
	}
	return DefaultWait
}

// reasons are parts of the reasons with which clients cancel a call that took them
// too long, in small letters.
//
//   - "McpError: MCP error -32001: Request timed out": @modelcontextprotocol/sdk 1.32.2
//   - "SdkError: Request timed out": @modelcontextprotocol/client 2.3.1
//   - "TimeoutError: The operation was aborted due to timeout": AbortSignal.timeout
//   - "request timeout": rmcp, the SDK for Rust
//   - "context deadline exceeded": the SDK for Go
var reasons = []string{"timed out", "timeout", "deadline exceeded"}

// TimedOut reports whether a client cancelled a call because the call took too long,
// by the reason in notifications/cancelled. Any other reason, and none, is a
// cancellation by the user: "AbortError: This operation was aborted", for example.
func TimedOut(reason string) bool {
	reason = strings.ToLower(reason)
	for _, part := range reasons {
		if strings.Contains(reason, part) {
			return true
		}
	}
	return false
}
