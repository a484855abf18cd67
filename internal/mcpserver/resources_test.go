package mcpserver

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestResources(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	r := run(t, cs, "out hello\nerr oops", nil)
	callTool(t, cs, "write_file", args{"sandbox_id": r.SandboxID, "path": "/data/a b.txt", "content": "text"})
	callTool(t, cs, "write_file", args{"sandbox_id": r.SandboxID, "path": "/data/pic", "content": "iVBORw0KGgr/", "encoding": "base64"})
	callTool(t, cs, "write_file", args{"sandbox_id": r.SandboxID, "path": "/data/large", "content": strings.Repeat("x", maxResourceFile+1)})

	read := func(uri string) ([]*mcp.ResourceContents, error) {
		res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil {
			return nil, err
		}
		return res.Contents, nil
	}
	files := "sandbox://" + r.SandboxID + "/files/data/"
	for uri, want := range map[string][]*mcp.ResourceContents{
		"run://" + r.RunID + "/output": {
			{URI: "run://" + r.RunID + "/output", MIMEType: "text/plain", Text: "hello\n"},
			{URI: "run://" + r.RunID + "/output#stderr", MIMEType: "text/plain", Text: "oops\n"},
		},
		files + "a%20b.txt": {{URI: files + "a%20b.txt", MIMEType: "text/plain; charset=utf-8", Text: "text"}},
		files + "pic":       {{URI: files + "pic", MIMEType: "image/png", Blob: []byte("\x89PNG\r\n\x1a\n\xff")}},
	} {
		got, err := read(uri)
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", uri, diff)
		}
	}
	for uri, want := range map[string]string{
		files + "none":                        "not found",
		files + "large":                       "read it in parts with read_file",
		"sandbox://none/files/x":              "not found",
		"run://none/output":                   "not found",
		"run://" + r.RunID + "/nothing":       "not found",
		"sandbox://" + r.SandboxID + "/files": "not found",
		"file:///etc/passwd":                  "not found",
		"run://\x00/output":                   "not found",
	} {
		if _, err := read(uri); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", uri, err, want)
		}
	}

	complete := func(name, value string, given map[string]string) []string {
		t.Helper()
		res, err := cs.Complete(t.Context(), &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/resource", URI: fileTemplate},
			Argument: mcp.CompleteParamsArgument{Name: name, Value: value},
			Context:  &mcp.CompleteContext{Arguments: given},
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.Completion.Values
	}
	if got := complete("id", "sbx_", nil); len(got) != 1 || got[0] != r.SandboxID {
		t.Errorf("ids: %q", got)
	}
	if got := complete("id", "x", nil); len(got) != 0 {
		t.Errorf("ids that begin with x: %q", got)
	}
	if diff := cmp.Diff([]string{"data/a b.txt"}, complete("path", "data/a", map[string]string{"id": r.SandboxID})); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

func TestSubscriptions(t *testing.T) {
	s, _ := newTestServer(t, nil)
	url := serveHTTP(t, s)
	for name, connect := range map[string]func(*mcp.ClientOptions) *mcp.ClientSession{
		"stdio":  func(o *mcp.ClientOptions) *mcp.ClientSession { return serveStdio(t, s, o) },
		"modern": func(o *mcp.ClientOptions) *mcp.ClientSession { return connectHTTP(t, url, "alice", o) },
	} {
		t.Run(name, func(t *testing.T) {
			updates := make(chan string, 100)
			cs := connect(&mcp.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
					updates <- r.Params.URI
				},
			})
			r := run(t, cs, "read\nread", args{"wait_seconds": 0})
			uri := "run://" + r.RunID + "/output"
			if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the run is watched", func() bool {
				s.watch.mu.Lock()
				defer s.watch.mu.Unlock()
				return s.watch.watches[uri] != nil
			})
			for range 2 {
				callTool(t, cs, "send_input", args{"run_id": r.RunID, "text": "more\n"})
				select {
				case got := <-updates:
					if got != uri {
						t.Errorf("update of %s, want %s", got, uri)
					}
				case <-time.After(5 * time.Second):
					t.Fatal("no update for new output")
				}
			}
			cs.Close()
			eventually(t, "nothing is watched", func() bool {
				s.watch.mu.Lock()
				defer s.watch.mu.Unlock()
				return len(s.watch.watches) == 0 && len(s.watch.wanted) == 0
			})
		})
	}
	cs := serveStdio(t, s, nil)
	if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "sandbox://x/files/y"}); err != nil {
		t.Logf("a subscription to a file is refused: %v", err)
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if len(s.watch.watches) != 0 {
		t.Error("a file is watched")
	}
}
