package app

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/mcpserver"
)

const askForTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"

// toolsOverStdio returns the names of the tools of a server on stdio.
func toolsOverStdio(t *testing.T, s *System) []string {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.ServeStdio(t.Context(), in, out) }()
	if _, err := io.WriteString(toServer, askForTools); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(fromServer).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	toServer.Close()
	go io.Copy(io.Discard, fromServer) // the test does not need the rest
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	out.Close()
	return toolNames(t, answer)
}

func toolNames(t *testing.T, answer string) (names []string) {
	t.Helper()
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil || len(list.Result.Tools) == 0 {
		t.Fatalf("%v: %s", err, answer)
	}
	for _, tool := range list.Result.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// TestCopyToolsNeedADirectory offers the tools that copy files of this machine
// only to a client on it, and only with an allowed directory. A profile has the
// tools of the replaced server in any case, and they say why they fail.
func TestCopyToolsNeedADirectory(t *testing.T) {
	for _, tt := range []struct {
		name, profile string
		dirs          []string
		want          bool
		tools         []string
	}{
		{"none", mcpserver.NativeProfile, nil, false, []string{"copy_in", "copy_out"}},
		{"one", mcpserver.NativeProfile, []string{t.TempDir()}, true, []string{"copy_in", "copy_out"}},
		{"none, automata", "automata", nil, true, []string{"copy_project", "copy_file", "copy_file_from_sandbox"}},
		{"one, automata", "automata", []string{t.TempDir()}, true, []string{"copy_project", "copy_file", "copy_file_from_sandbox"}},
		{"one, interpreter", "interpreter", []string{t.TempDir()}, false, []string{"copy_in", "copy_out"}},
		{"one, code-runner", "code-runner", []string{t.TempDir()}, false, []string{"copy_in", "copy_out"}},
		{"one, e2b", "e2b", []string{t.TempDir()}, false, []string{"copy_in", "copy_out"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := testOptions(t, t.TempDir())
			o.Config.MCP.Profile, o.Config.MCP.AllowDirs = tt.profile, tt.dirs
			got := toolsOverStdio(t, mustOpen(t, o))
			for _, tool := range tt.tools {
				if slices.Contains(got, tool) != tt.want {
					t.Errorf("%s is offered: %v, want %v", tool, !tt.want, tt.want)
				}
			}
		})
	}
}

// TestCopyToolsAreNotOverHTTP offers no files of the server's machine to clients
// that may be elsewhere.
func TestCopyToolsAreNotOverHTTP(t *testing.T) {
	var token string
	_, url := serveHTTP(t, func(o *Options) {
		o.Config.MCP.AllowDirs = []string{t.TempDir()}
		tokens, err := OpenTokens(t.Context(), o.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer tokens.Close()
		if token, _, err = tokens.Create(t.Context(), "alice", []string{"run", "files", "admin"}); err != nil {
			t.Fatal(err)
		}
	})
	names := toolNames(t, caller{t, url, token, http.DefaultClient}.call("tools/list", nil))
	for _, tool := range []string{"copy_in", "copy_out"} {
		if slices.Contains(names, tool) || !slices.Contains(names, "file_url") {
			t.Errorf("over HTTP there are %v; want file_url, and not %s", names, tool)
		}
	}
}
