package transport

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
)

func TestIsModern(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		body         string
		headers      []string
		want         bool
	}{
		{"meta", "POST", `{"method":"tools/list","params":{` + modernMeta + `}}`, nil, true},
		{"header", "POST", `{"method":"tools/list"}`, []string{versionHeader, "2026-07-28"}, true},
		{"later header", "POST", `{"method":"tools/list"}`, []string{versionHeader, "2027-01-01"}, true},
		{"discover", "POST", `{"method":"server/discover"}`, nil, true},
		{"initialize with meta", "POST", `{"method":"initialize","params":{` + modernMeta + `}}`, nil, true},
		{"initialize with header", "POST", initialize, []string{versionHeader, "2026-07-28"}, false},
		{"initialize", "POST", initialize, nil, false},
		{"older header", "POST", `{"method":"tools/list"}`, []string{versionHeader, "2025-11-25"}, false},
		{"in a session", "POST", `{"method":"tools/list","params":{` + modernMeta + `}}`, []string{sessionHeader, "x"}, false},
		{"plain", "POST", `{"method":"tools/list"}`, nil, false},
		{"batch", "POST", `[` + initialize + `]`, nil, false},
		{"stream", "GET", ``, []string{versionHeader, "2026-07-28"}, false},
		{"end", "DELETE", ``, nil, false},
	} {
		r := httptest.NewRequest(tt.method, "/mcp", nil)
		for i := 0; i < len(tt.headers); i += 2 {
			r.Header.Set(tt.headers[i], tt.headers[i+1])
		}
		var m message
		if tt.body != "" {
			var err error
			if m, err = peek([]byte(tt.body)); err != nil {
				t.Fatal(err)
			}
		}
		if got := isModern(r, m); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestBatchSize counts the messages of a batch.
func TestBatchSize(t *testing.T) {
	message := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	batch := func(n int) []byte {
		return []byte(" [" + strings.TrimSuffix(strings.Repeat(message+",", n), ",") + "]")
	}
	for n, want := range map[int]int{1: 1, maxBatch: maxBatch, maxBatch + 1: maxBatch + 1} {
		if got := batchSize(batch(n)); got != want {
			t.Errorf("%d messages count as %d", n, got)
		}
	}
	if got := batchSize([]byte(message)); got != 0 {
		t.Errorf("a message alone counts as %d", got)
	}
}

// TestLongProgressToken ignores a token that each notification would repeat.
func TestLongProgressToken(t *testing.T) {
	token := &mcp.CallToolParamsRaw{}
	token.SetProgressToken(strings.Repeat("x", maxID+1))
	if got := ProgressToken(&mcp.CallToolRequest{Params: token}); got != nil {
		t.Error("a long progress token is repeated")
	}
}
