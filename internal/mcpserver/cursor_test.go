package mcpserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestDefaultOutputFits shows head and tail of a long output, after the verdict,
// and reads the rest by the cursors of the results.
func TestDefaultOutputFits(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	res := callTool(t, cs, "run_code", args{"code": "repeat 5000 line\nerr one\nrepeat 5000 line"})
	r := structured[answer.Run](t, res)
	if !strings.HasPrefix(text(res), "[ok, exit code 0, ") || !strings.Contains(text(res)[:200], r.RunID) {
		t.Errorf("the text does not begin with verdict and run: %.200s", text(res))
	}
	if n := len(text(res)); n > defaultOutput+1000 || n < defaultOutput {
		t.Errorf("the text has %d bytes, want about %d", n, defaultOutput)
	}
	if r.NextStep == "" || !strings.Contains(text(res), "\n"+r.NextStep+"\n") || !strings.Contains(r.NextStep, r.Cursor) {
		t.Errorf("next step %q, cursor %q; the text has %.600s", r.NextStep, r.Cursor, text(res))
	}
	whole := structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": r.RunID, "limit": 1 << 20}))
	if whole.Cursor != "" || whole.NextStep != "" || whole.Omitted != (sandbox.Omitted{}) {
		t.Errorf("all of the output, and cursor %q, %q", whole.Cursor, whole.NextStep)
	}
	if large := structured[answer.Run](t, callTool(t, cs, "run_code", args{"code": "repeat 5000 line", "output_bytes": 1 << 20})); large.Omitted != (sandbox.Omitted{}) {
		t.Errorf("with output_bytes, %+v is omitted", large.Omitted)
	}
	shown, pages := r.Stdout[:defaultOutput/2], 0
	for at := r.Cursor; at != ""; pages++ {
		p := structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": r.RunID, "after": at, "limit": 20000}))
		shown += p.Stdout
		if p.Cursor == at || p.Stderr != "" {
			t.Fatalf("after %s: cursor %s, stderr %q", at, p.Cursor, p.Stderr)
		}
		at = p.Cursor
	}
	if shown != whole.Stdout || pages < 3 {
		t.Errorf("%d pages have %d bytes, want the %d of all output", pages, len(shown), len(whole.Stdout))
	}
}

// TestCursorOfARunInProgress follows a run: each result has what is new.
func TestCursorOfARunInProgress(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	r := structured[answer.Run](t, callTool(t, cs, "run_code", args{"code": "out a\nerr b\nread\nerr c", "wait_seconds": 0}))
	eventually(t, "the program waits", func() bool {
		r = structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": r.RunID}))
		return r.Stdout == "a\n" && r.Stderr == "b\n"
	})
	if r.Cursor != "2,2" || !strings.HasPrefix(r.NextStep, "The run goes on.") {
		t.Errorf("cursor %q, next step %q", r.Cursor, r.NextStep)
	}
	callTool(t, cs, "send_input", args{"run_id": r.RunID, "text": "x\n"})
	r = structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": r.RunID, "after": r.Cursor, "wait_seconds": 10}))
	if r.Stdout != "x\n" || r.Stderr != "c\n" || r.Cursor != "" || r.Verdict == nil {
		t.Errorf("after the input: %+v", r)
	}
	for _, tt := range []struct {
		a    args
		want string
	}{
		{args{"after": "2"}, `after: "2" is not a cursor`},
		{args{"after": "-1,2"}, `after: "-1,2" is not a cursor`},
		{args{"after": "1,2,3"}, `after: "1,2,3" is not a cursor`},
		{args{"after": "1,99999999999999999999"}, "is not a cursor"},
		{args{"after": "1,2", "stream": "stdout"}, "after: it is for both streams"},
		{args{"after": "1,2", "grep": "x"}, "after: it is for both streams"},
	} {
		tt.a["run_id"] = r.RunID
		res := callTool(t, cs, "get_run", tt.a)
		if diff := cmp.Diff("after", structured[sandbox.Problem](t, res).Argument); diff != "" || !strings.Contains(text(res), tt.want) {
			t.Errorf("%v: %s", tt.a, text(res))
		}
	}
	end := structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": r.RunID, "after": "1000,1000"}))
	if end.Stdout+end.Stderr != "" || end.Cursor != "" {
		t.Errorf("beyond the end: %+v", end)
	}
}

// written is a run that has written these streams.
func written(t *testing.T, cs *mcp.ClientSession, e *fakeEngine, stdout, stderr string) *fakeRun {
	t.Helper()
	r := structured[answer.Run](t, callTool(t, cs, "run_code", args{"code": "exit 0"}))
	e.mu.Lock()
	run := e.runs[r.RunID]
	e.mu.Unlock()
	run.write(sandbox.Stdout, stdout)
	run.write(sandbox.Stderr, stderr)
	return run
}

// pages reads a run by the cursors of the results, and returns the pages.
func pages(t *testing.T, cs *mcp.ClientSession, run *fakeRun, limit int) (all []answer.Run) {
	t.Helper()
	for at := "0,0"; at != ""; {
		res := callTool(t, cs, "get_run", args{"run_id": run.run.ID, "after": at, "limit": limit})
		p := structured[answer.Run](t, res)
		if res.IsError || p.Cursor == at {
			t.Fatalf("after %s: %s", at, text(res))
		}
		at, all = p.Cursor, append(all, p)
	}
	return all
}

// TestCursorOfColours pages through coloured output. The text is what a terminal shows,
// and the cursors count the bytes of the output.
func TestCursorOfColours(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	line := "\x1b[38;5;196mred\x1b[0m line\n"
	run := written(t, cs, e, strings.Repeat(line, 100), "")
	var out string
	for _, p := range pages(t, cs, run, 258) {
		out += p.Stdout
	}
	if want := strings.Repeat("red line\n", 100); out != want {
		t.Errorf("%q", out)
	}
	found := structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": run.run.ID, "grep": "^red line$", "limit": 1 << 20}))
	if *found.Page.Matches != 100 || !strings.HasPrefix(found.Stdout, fmt.Sprintf("0: red line\n%d: red line\n", len(line))) {
		t.Errorf("%d matches: %.60q", *found.Page.Matches, found.Stdout)
	}
	bar := written(t, cs, e, strings.Repeat("\r\x1b[K50%", 10)+"\r\x1b[K100%\n", "")
	if r := structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": bar.run.ID, "offset": 0})); r.Stdout != "100%\n" || r.Page.NextOffset != r.Page.Total {
		t.Errorf("a bar: %q, %+v", r.Stdout, r.Page)
	}
}

// TestCursorOfInvalidText pages through bytes whose text is longer than they are.
func TestCursorOfInvalidText(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	stdout := strings.Repeat("0123456789\n", 100)
	run := written(t, cs, e, stdout, strings.Repeat("\xffa", 1000)+"\xff")
	var out, errs string
	for i, p := range pages(t, cs, run, 258) {
		if len(p.Stdout) < 129 && len(out)+len(p.Stdout) < len(stdout) {
			t.Errorf("page %d has %d bytes of stdout, want at least half of the limit", i, len(p.Stdout))
		}
		out, errs = out+p.Stdout, errs+p.Stderr
	}
	if want := strings.Repeat("\uFFFDa", 1000) + "\uFFFD"; out != stdout || errs != want {
		t.Errorf("%d bytes of stdout and %d of stderr, want %d and %d", len(out), len(errs), len(stdout), len(want))
	}
}

// TestCursorStepsOverAGap reads and searches a stream whose middle was not kept.
func TestCursorStepsOverAGap(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	for _, stream := range []sandbox.StreamName{sandbox.Stdout, sandbox.Stderr} {
		for _, gap := range []sandbox.Gap{{From: 500, To: 900}, {From: 0, To: 900}, {From: 500, To: 1100}, {From: 505, To: 901}} {
			whole := strings.Repeat("0123456789\n", 100)
			run := written(t, cs, e, whole, whole)
			gap.Stream = stream
			run.gap = gap
			got := map[sandbox.StreamName]string{}
			for _, p := range pages(t, cs, run, 256) {
				got[sandbox.Stdout] += p.Stdout
				got[sandbox.Stderr] += p.Stderr
			}
			want := map[sandbox.StreamName]string{sandbox.Stdout: whole, sandbox.Stderr: whole}
			want[stream] = whole[:gap.From] + sandbox.NotKept(gap.To-gap.From) + whole[gap.To:]
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", gap, diff)
			}
			r := structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": run.run.ID, "stream": stream, "grep": "^0123456789$"}))
			lines := (gap.From+1)/11 + (1100-gap.To)/11
			if r.Page == nil || r.Page.Matches == nil || int64(*r.Page.Matches) != lines || r.Page.NextOffset != r.Page.Total {
				t.Errorf("%+v: %+v, want %d matches up to the end", gap, r.Page, lines)
			}
		}
	}
}
