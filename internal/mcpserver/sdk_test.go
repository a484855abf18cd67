package mcpserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
)

// TestTypeScriptSDK has a whole conversation with a client of the TypeScript
// SDK on each transport; the program is in testdata/conversation.mjs.
func TestTypeScriptSDK(t *testing.T) {
	program, err := filepath.Abs(filepath.Join("testdata", "conversation.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	command := nodeProgram(t, "mcp-sdk", "@modelcontextprotocol", "sdk", "package.json")
	s, _ := newTestServer(t, nil)
	url := serveHTTP(t, s)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, arguments := range map[string][]string{
		"stdio": {"stdio", self, "serve-stdio"},
		"http":  {"http", url + transport.StreamablePath, "alice"},
		"sse":   {"sse", url + transport.SSEPath, "bob"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), command[0], append([]string{program, filepath.Dir(command[1])}, arguments...)...)
			cmd.WaitDelay = 10 * time.Second
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
