package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestGetRun(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	r := run(t, cs, "repeat 1000 line\nerr oops", args{"output_bytes": 256})
	if r.Omitted.StdoutBytes == 0 || len(r.Stdout) > 300 {
		t.Fatalf("256 bytes of budget: %d bytes shown, %+v omitted", len(r.Stdout), r.Omitted)
	}
	get := func(a args) answer.Run {
		t.Helper()
		a["run_id"] = r.RunID
		return structured[answer.Run](t, callTool(t, cs, "get_run", a))
	}
	whole := get(args{"limit": 1 << 20})
	if whole.Omitted.StdoutBytes != 0 || strings.Count(whole.Stdout, "\n") != 1000 || whole.Stderr != "oops\n" {
		t.Errorf("the whole output has %d lines and %q", strings.Count(whole.Stdout, "\n"), whole.Stderr)
	}
	var paged string
	for offset := int64(0); ; {
		p := get(args{"stream": "stdout", "offset": offset, "limit": 1000})
		paged += p.Stdout
		if p.Page == nil || p.Page.Total != int64(len(whole.Stdout)) {
			t.Fatalf("page %+v, want a total of %d", p.Page, len(whole.Stdout))
		}
		if p.Page.NextOffset == p.Page.Total {
			break
		}
		if p.Page.NextOffset <= offset {
			t.Fatalf("page %+v does not advance", p.Page)
		}
		offset = p.Page.NextOffset
	}
	if paged != whole.Stdout {
		t.Error("the pages together are not the output")
	}
	found := get(args{"grep": `^99\d? `})
	if !strings.HasPrefix(found.Stdout, "782: 99 line\n8800: 990 line\n") || *found.Page.Matches != 11 {
		t.Errorf("grep found %d lines:\n%s", *found.Page.Matches, found.Stdout)
	}
	some := get(args{"grep": "line", "limit": 256})
	rest := get(args{"grep": "line", "offset": some.Page.NextOffset, "limit": 1 << 20})
	if *some.Page.Matches+*rest.Page.Matches != 1000 || len(some.Stdout) > 256 {
		t.Errorf("a search in two parts found %d and %d of 1000 lines", *some.Page.Matches, *rest.Page.Matches)
	}
	if e := get(args{"stream": "stderr"}); e.Stderr != "oops\n" || e.Stdout != "" {
		t.Errorf("stderr alone is %q and %q", e.Stderr, e.Stdout)
	}
	if end := get(args{"stream": "stdout", "offset": 1 << 40}); end.Stdout != "" || end.Page.NextOffset != 1<<40 {
		t.Errorf("beyond the end: %+v, page %+v", end, end.Page)
	}
}

func TestLongRun(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	res := callTool(t, cs, "run_code", args{"code": "out ready\nread\nread\nout bye\nexit 0", "wait_seconds": 0})
	r := structured[answer.Run](t, res)
	if res.IsError || r.Status != sandbox.RunRunning || r.Verdict != nil || !strings.Contains(text(res), "The run goes on.") {
		t.Fatalf("with wait_seconds 0: %+v\n%s", r, text(res))
	}
	callTool(t, cs, "send_input", args{"run_id": r.RunID, "text": "hello\n"})
	callTool(t, cs, "send_input", args{"run_id": r.RunID, "text": "again", "eof": true})
	r = structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": r.RunID, "wait_seconds": 10}))
	if r.Stdout != "ready\nhello\nagainbye\n" || r.Verdict == nil || r.Verdict.Code != sandbox.OK {
		t.Errorf("after the input: %+v", r)
	}
	if e.stopped() != 0 {
		t.Error("a run that was handed over was stopped")
	}
	if res := callTool(t, cs, "send_input", args{"run_id": r.RunID, "text": "x"}); !res.IsError {
		t.Error("input was taken after its end")
	}

	r = run(t, cs, "out a\nsleep 1h", args{"wait_seconds": 0})
	res = callTool(t, cs, "stop_run", args{"run_id": r.RunID})
	if r := structured[answer.Run](t, res); r.Verdict == nil || r.Verdict.Code != sandbox.Cancelled || !res.IsError {
		t.Errorf("stop_run: %+v, isError %v", r.Verdict, res.IsError)
	}
	if !strings.Contains(text(res), "\nThe run was stopped, as asked.") {
		t.Errorf("stop_run does not say that it did what it was to do: %s", text(res))
	}
	r = run(t, cs, "out a", nil)
	if res := callTool(t, cs, "stop_run", args{"run_id": r.RunID}); res.IsError || strings.Contains(text(res), "as asked") {
		t.Errorf("stop_run of a run that had ended: isError %v, %s", res.IsError, text(res))
	}
}

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newTestServer(t, nil)
		cs := serveStdio(t, s, nil)
		began := time.Now()
		r := run(t, cs, "out a\nsleep 2m\nout b", nil)
		if waited := time.Since(began); r.Status != sandbox.RunRunning || waited != DefaultPatience {
			t.Errorf("after %v: %q; want running after %v", waited, r.Status, DefaultPatience)
		}
		for range 2 {
			r = structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": r.RunID, "wait_seconds": 600}))
		}
		if waited := time.Since(began); r.Status != sandbox.RunFinished || waited != 2*time.Minute || r.Stdout != "a\nb\n" {
			t.Errorf("after %v: %q, %q; want finished after two minutes", waited, r.Status, r.Stdout)
		}
		if e.stopped() != 0 {
			t.Error("the run was stopped")
		}
	})
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, nil)
		type report struct {
			progress float64
			message  string
		}
		var got []report
		cs := serveStdio(t, s, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				got = append(got, report{r.Params.Progress, r.Params.Message})
			},
		})
		p := &mcp.CallToolParams{Name: "run_code", Arguments: args{"code": "sleep 1500ms\nout one\nsleep 1s\nout two\rthree\nsleep 1s"}}
		p.SetProgressToken("t")
		if _, err := cs.CallTool(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := []report{{1, "running for 1 s"}, {2, "one"}, {3, "three"}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(report{})); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

// fetching is an engine whose sandboxes have images that must be fetched.
type fetching struct{ *fakeEngine }

func (e fetching) Create(ctx context.Context, p sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error) {
	if req.Progress != nil {
		req.Progress(sandbox.ImageProgress{Step: "resolve"})
		time.Sleep(1500 * time.Millisecond)
		req.Progress(sandbox.ImageProgress{Step: "fetch", Done: 1 << 20, Total: 4 << 20})
		time.Sleep(time.Second)
	}
	return e.fakeEngine.Create(ctx, p, req)
}

// TestFetchProgress tells a client that asked for it what takes so long.
func TestFetchProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newTestServer(t, nil)
		s.engine = fetching{e}
		var got []string
		cs := serveStdio(t, s, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				got = append(got, fmt.Sprintf("%.0f %s", r.Params.Progress, r.Params.Message))
			},
		})
		p := &mcp.CallToolParams{Name: "create_sandbox", Arguments: args{"image": "debian:12"}}
		p.SetProgressToken("t")
		if r, err := cs.CallTool(t.Context(), p); err != nil || r.IsError {
			t.Fatal(r, err)
		}
		synctest.Wait()
		want := []string{"1 looking up debian:12", "2 fetching 25% of 4 MiB of debian:12"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

func TestLastLine(t *testing.T) {
	for _, tt := range []struct {
		in   []string
		want string
	}{
		{nil, ""},
		{[]string{"a\nb\n"}, "b"},
		{[]string{"a\nb", "c"}, "bc"},
		{[]string{"a\n", "b"}, "b"},
		{[]string{"a\n", "\n", "\r\n"}, "a"},
		{[]string{"10%\r20%\r"}, "20%"},
		{[]string{"a", "\nb"}, "b"},
		{[]string{strings.Repeat("x", 1000)}, strings.Repeat("x", maxLine)},
		{[]string{"\xff\n"}, "\uFFFD"},
		{[]string{"a\n", "\x1b[32m50%\x1b[0m"}, "50%"},
	} {
		var l lastLine
		for _, in := range tt.in {
			l.add([]byte(in))
		}
		if got := l.String(); got != tt.want {
			t.Errorf("after %q the last line is %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestCancelStopsTheRun(t *testing.T) {
	for name, connect := range map[string]func(*testing.T, *Server) *mcp.ClientSession{
		"stdio": func(t *testing.T, s *Server) *mcp.ClientSession { return serveStdio(t, s, nil) },
		"http": func(t *testing.T, s *Server) *mcp.ClientSession {
			return connectAs(t, s, "http", "2025-11-25", &person{})
		},
		"sse": func(t *testing.T, s *Server) *mcp.ClientSession { return connectSSE(t, serveHTTP(t, s), "alice") },
	} {
		t.Run(name, func(t *testing.T) {
			s, e := newTestServer(t, nil)
			cs := connect(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			started := make(chan struct{})
			go func() {
				eventually(t, "a run", func() bool {
					e.mu.Lock()
					defer e.mu.Unlock()
					return len(e.runs) == 1
				})
				close(started)
				cancel()
			}()
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "run_code", Arguments: args{"code": "sleep 1h"}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("CallTool: %v, want cancelled", err)
			}
			<-started
			eventually(t, "the run is stopped", func() bool { return e.stopped() == 1 })
		})
	}
}
