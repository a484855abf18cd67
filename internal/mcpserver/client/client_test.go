package client

import (
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	for name, want := range map[string]string{
		"claude-code": "claude-code", "codex-mcp-client": "codex-mcp-client",
		"gemini-cli-mcp-client": "gemini-cli-mcp-client", "gemini-cli-mcp-client-glovebox": "gemini-cli-mcp-client",
		"": "", "claude": "", "claude-codex": "", "Claude-Code": "", "x-claude-code": "",
	} {
		if got := Of(name).Name; got != want {
			t.Errorf("Of(%q) is %q, want %q", name, got, want)
		}
	}
}

// TestTableHasEvidence refuses a row that says nothing, or not why.
func TestTableHasEvidence(t *testing.T) {
	for _, c := range Table() {
		if c.Evidence == "" || c.Waits == 0 && !c.WaitsForProgress && !c.ClosesToCancel && !c.TextOnly && !c.ErrorsLosePictures && !c.LinksAsText {
			t.Errorf("%q: a row without evidence, or without a difference", c.Name)
		}
		if _, err := time.Parse(time.DateOnly, c.Date); err != nil {
			t.Errorf("%q: %v", c.Name, err)
		}
		if c.Waits > MaxWait {
			t.Errorf("%q waits longer than any call", c.Name)
		}
	}
}

func TestWait(t *testing.T) {
	for _, tt := range []struct {
		c        Client
		progress bool
		want     time.Duration
	}{
		{Client{}, false, DefaultWait},
		{Client{}, true, DefaultWait},
		{Client{Waits: time.Minute}, true, time.Minute},
		{Client{Waits: time.Minute, WaitsForProgress: true}, true, MaxWait},
		{Client{Waits: time.Minute, WaitsForProgress: true}, false, time.Minute},
		{Client{WaitsForProgress: true}, false, DefaultWait},
	} {
		if got := tt.c.Wait(tt.progress); got != tt.want {
			t.Errorf("%+v, progress %v: %v, want %v", tt.c, tt.progress, got, tt.want)
		}
	}
}

func TestTimedOut(t *testing.T) {
	for reason, want := range map[string]bool{
		"McpError: MCP error -32001: Request timed out":          true,
		"SdkError: Request timed out":                            true,
		"TimeoutError: The operation was aborted due to timeout": true,
		"request timeout":                                        true,
		"context deadline exceeded":                              true,
		"":                                                       false,
		"AbortError: This operation was aborted":                 false,
		"context canceled":                                       false,
		"User requested cancellation":                            false,
		"interrupt":                                              false,
	} {
		if got := TimedOut(reason); got != want {
			t.Errorf("TimedOut(%q) = %v", reason, got)
		}
	}
}
