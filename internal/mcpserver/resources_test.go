package mcpserver

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
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
		"sandbox://none/logs":                 "not found",
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

	template := fileTemplate
	complete := func(name, value string, given map[string]string) []string {
		t.Helper()
		res, err := cs.Complete(t.Context(), &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/resource", URI: template},
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
	template = logsTemplate
	if diff := cmp.Diff([]string{r.SandboxID}, complete("id", "sbx_", nil)); diff != "" {
		t.Errorf("ids of logs (-want +got):\n%s", diff)
	}
	second := run(t, cs, "out again", args{"sandbox_id": r.SandboxID})
	template = outputTemplate
	if diff := cmp.Diff([]string{second.RunID, r.RunID}, complete("id", "run_", nil)); diff != "" {
		t.Errorf("ids of runs (-want +got):\n%s", diff)
	}
	if got := complete("path", "", nil); len(got) != 0 {
		t.Errorf("paths of runs: %q", got)
	}
}

func TestLogsResource(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	sb := structured[struct {
		ID string `json:"sandbox_id"`
	}](t, callTool(t, cs, "create_sandbox", nil)).ID
	read := func() string {
		t.Helper()
		res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "sandbox://" + sb + "/logs"})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Contents) != 1 || res.Contents[0].MIMEType != "text/plain" {
			t.Fatalf("contents %+v", res.Contents)
		}
		return res.Contents[0].Text
	}
	if got := read(); got != "no runs yet" {
		t.Errorf("the log of a fresh sandbox: %q", got)
	}
	run(t, cs, "out one\nerr two", args{"sandbox_id": sb})
	run(t, cs, "out three\nexit 3", args{"sandbox_id": sb})
	run(t, cs, "out elsewhere", nil)
	run(t, cs, "out four\nread", args{"sandbox_id": sb, "wait_seconds": 0})
	got := read()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(got, "four") && time.Now().Before(deadline); got = read() {
		time.Sleep(time.Millisecond) // nobody waited for what the last one writes
	}
	for at, part := range []string{
		"[ok, exit code 0", "]\n  stdout:\n  one\n  stderr:\n  two\n", "[failed, exit code 3", "  three\n", "[running, ", "  four",
	} {
		i := strings.Index(got, part)
		if i < 0 {
			t.Fatalf("part %d, %q, is not there after the ones before:\n%s", at, part, got)
		}
		got = got[i+len(part):]
	}
	if strings.Contains(got, "elsewhere") {
		t.Error("the log has another sandbox's run")
	}
	// However many runs there are, and whatever they write, it has a bound.
	for range maxLogRuns + 5 {
		run(t, cs, "repeat 300 "+strings.Repeat("x", 100), args{"sandbox_id": sb})
	}
	got = read()
	if !strings.HasPrefix(got, "Runs before the last 200 are not shown.\n") || len(got) > 2*maxResourceOutput {
		t.Errorf("%d bytes: %.200s", len(got), got)
	}
	if strings.Contains(got, "three") {
		t.Error("runs that are too old are shown")
	}
}

// TestWatchedState has what changes by itself and what does not.
func TestWatchedState(t *testing.T) {
	s, _ := newTestServer(t, nil)
	updates := make(chan string, 100)
	cs := serveStdio(t, s, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updates <- r.Params.URI },
	})
	r := run(t, cs, "read\nread", args{"wait_seconds": 0})
	logs, file := "sandbox://"+r.SandboxID+"/logs", "sandbox://"+r.SandboxID+"/files/data/f"
	for _, uri := range []string{logs, file} {
		subscribe(t, s, cs, uri)
	}
	// A slow machine tells one change in several updates: those of the last one
	// may come yet.
	last := ""
	expect := func(what, want string) {
		t.Helper()
		for {
			select {
			case got := <-updates:
				if got == want {
					last = want
					return
				}
				if got != last {
					t.Errorf("%s: update of %s, want %s", what, got, want)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: no update of %s", what, want)
			}
		}
	}
	callTool(t, cs, "send_input", args{"run_id": r.RunID, "text": "more\n"})
	expect("output", logs)
	callTool(t, cs, "write_file", args{"sandbox_id": r.SandboxID, "path": "f", "content": "1"})
	expect("a file is made", file)
	callTool(t, cs, "write_file", args{"sandbox_id": r.SandboxID, "path": "f", "content": "12"})
	expect("a file changes", file)
	callTool(t, cs, "send_input", args{"run_id": r.RunID, "text": "last\n"})
	expect("the run ends", logs)
	run(t, cs, "out x", args{"sandbox_id": r.SandboxID})
	expect("another run", logs)
	for more, quiet := 0, false; !quiet; {
		select {
		case uri := <-updates:
			if more++; uri != last || more > 1 {
				t.Errorf("update of %s, where nothing changed", uri)
			}
		case <-time.After(3 * lookEvery):
			quiet = true
		}
	}
	callTool(t, cs, "stop_sandbox", args{"sandbox_id": r.SandboxID})
	got := map[string]bool{}
	for range 2 {
		select {
		case uri := <-updates:
			got[uri] = true
		case <-time.After(10 * time.Second):
		}
	}
	if !got[logs] || !got[file] {
		t.Errorf("updates after the sandbox's end: %v", got)
	}
}

// subscribe subscribes to a resource, and waits until the server follows it:
// from 2026-07-28 on a client is not told, or does not wait to be.
func subscribe(t *testing.T, s *Server, cs *mcp.ClientSession, uri string) {
	t.Helper()
	if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatalf("%s: %v", uri, err)
	}
	eventually(t, uri+" is watched", func() bool {
		s.watch.mu.Lock()
		defer s.watch.mu.Unlock()
		return s.watch.watches[uri] != nil
	})
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
			subscribe(t, s, cs, uri)
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
	for _, uri := range []string{"sandbox://x/files/y", "sandbox://x/logs", "run://x/output", "sandbox://x/other", "file:///etc/passwd"} {
		if _, err := s.watch.follower(t.Context(), auth.Local(), uri); err == nil {
			t.Errorf("%s can be followed", uri)
		}
		// From 2026-07-28 on, what is refused is only left out.
		if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
			t.Logf("%s: %v", uri, err)
		}
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if len(s.watch.watches) != 0 {
		t.Error("something is watched that there is not")
	}
}
