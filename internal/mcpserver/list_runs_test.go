package mcpserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
)

// TestListRuns checks that a model finds its runs without any identifier, and no run
// of another principal.
func TestListRuns(t *testing.T) {
	s, e := newTestServer(t, func(o *Options) { o.ToolPrefix = "gb_" })
	url := serveHTTP(t, s)
	alice, bob := connectHTTP(t, url, "alice", nil), connectHTTP(t, url, "bob", nil)
	if got := text(callTool(t, alice, "gb_get_run", args{})); got != "There are no runs." {
		t.Errorf("without runs: %s", got)
	}
	going := structured[answer.Run](t, callTool(t, alice, "gb_run_code", args{"code": "\nsleep 1h\nexit 0", "wait_seconds": 0}))
	callTool(t, bob, "gb_run_code", args{"code": "out of bob"})
	for i := range 11 {
		callTool(t, alice, "gb_run_code", args{"code": fmt.Sprintf("exit %d\nout \"x\"", i)})
	}
	callTool(t, alice, "gb_run_code", args{"code": "out " + strings.Repeat("é", 100)})

	res := callTool(t, alice, "gb_get_run", args{})
	list := structured[answer.RunList](t, res)
	var got []string
	for _, r := range list.Runs {
		if r.SandboxID == "" || r.RunID == "" || r.Started.IsZero() {
			t.Errorf("a run without a name or time: %+v", r)
		}
		if !strings.Contains(text(res), r.RunID) || !strings.Contains(text(res), r.SandboxID) {
			t.Errorf("the text lacks the identifiers of %s:\n%s", r.RunID, text(res))
		}
		got = append(got, fmt.Sprint(r.Status, " ", r.Verdict, " ", r.Program))
	}
	want := []string{"running  sleep 1h", "finished ok out " + strings.Repeat("é", 38)}
	for i := 10; i > 2; i-- {
		want = append(want, fmt.Sprint("finished failed exit ", i))
	}
	if d := cmp.Diff(want, got); d != "" || res.IsError {
		t.Errorf("the list (-want +got):\n%s", d)
	}
	if first, _, _ := strings.Cut(text(res), "\n"); !strings.Contains(first, going.RunID+": running") || !strings.Contains(first, `"sleep 1h"`) {
		t.Errorf("the run in progress is not first: %s", first)
	}
	if !strings.HasSuffix(text(res), "gb_get_run with a run_id shows the run, and wait_seconds waits for its end.") {
		t.Errorf("the text does not say how to go on:\n%s", text(res))
	}
	if list := structured[answer.RunList](t, callTool(t, bob, "gb_get_run", args{})); len(list.Runs) != 1 || list.Runs[0].Program != "out of bob" {
		t.Errorf("another principal sees %+v", list)
	}
	if res := callTool(t, alice, "gb_get_run", args{"wait_seconds": 5}); !res.IsError || !strings.Contains(text(res), "run_id: ") {
		t.Errorf("wait_seconds without run_id: %s", text(res))
	}
	e.mu.Lock()
	stops := e.stops
	e.mu.Unlock()
	if stops != 0 {
		t.Errorf("the list stopped %d runs", stops)
	}
}
