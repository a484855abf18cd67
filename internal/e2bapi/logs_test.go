package e2bapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// slowly answers with a stream that arrives byte by byte.
func slowly(contentType string, body []byte) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		return &http.Response{
			StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {contentType}},
			Body: io.NopCloser(iotest.OneByteReader(bytes.NewReader(body))),
		}, nil
	}
}

// processStream returns a guest's stream of those messages.
func processStream(messages ...string) []byte {
	var all []byte
	for _, m := range messages {
		all = guestapi.AppendEnvelope(all, 0, []byte(m))
	}
	return guestapi.AppendEnvelope(all, guestapi.FlagEndStream, []byte("{}"))
}

func stdout(text string) string {
	return string(guestapi.AppendDataEnvelope(nil, guestapi.Stdout, []byte(text))[5:])
}

func stderr(text string) string {
	return string(guestapi.AppendDataEnvelope(nil, guestapi.Stderr, []byte(text))[5:])
}

// logged returns the entries of an answer as "level event: message".
func logged(t *testing.T, address string) []string {
	t.Helper()
	status, _, body := do(t, "GET", address, "", "X-API-KEY", "alice")
	var in struct {
		Logs, LogEntries []struct {
			logEntry
			Line string
		}
	}
	if err := json.Unmarshal([]byte(body), &in); err != nil || status != 200 {
		t.Fatalf("status %d, %v: %s", status, err, body)
	}
	list := in.Logs
	if in.LogEntries != nil {
		list = in.LogEntries
		for i, l := range in.Logs {
			if !strings.Contains(l.Line, fmt.Sprintf("%q", list[i].Message)) || !l.Timestamp.Equal(list[i].Timestamp) {
				t.Errorf("line %q at %v is not entry %+v", l.Line, l.Timestamp, list[i])
			}
		}
	}
	got := []string{}
	for _, e := range list {
		got = append(got, fmt.Sprintf("%s %s: %s", e.Level, e.Fields["event_type"], e.Message))
	}
	return got
}

// TestLogs: the log has the programs and executions that clients start, and the runs
// of other protocols.
func TestLogs(t *testing.T) {
	e, s, srv := newTest(t)
	id := e.add("alice", nil)
	clock := now
	s.journal.now = func() time.Time { clock = clock.Add(time.Second); return clock }
	e.answer = slowly(guestapi.ContentTypeStream, processStream(
		`{"event":{"start":{"pid":7}}}`, stdout("one\ntw"), `{"event":{"keepalive":{}}}`, stdout("o\n"), stderr("unfinished"),
		`{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3"}}}`))
	request := guestapi.AppendEnvelope(nil, 0, []byte(`{"process":{"cmd":"/bin/bash","args":["-l","-c","echo one"],"envs":{"PASSWORD":"hidden"}}}`))
	_, _, body := do(t, "POST", srv.URL+guestapi.ProcStart, string(request), "E2b-Sandbox-Id", id, "X-Access-Token", "access-"+id, "Content-Type", guestapi.ContentTypeStream)
	if !strings.Contains(body, `"pid":7`) || !strings.Contains(body, "exit status 3") {
		t.Errorf("the client got %q", body)
	}
	e.answer = slowly("application/json", []byte(`{"type":"stdout","text":"3\n"}`+"\n"+`{"type":"result","png":"`+strings.Repeat("x", maxOutOfLine)+`"}`+"\n"+
		`{"type":"error","name":"ValueError","value":"no"}`+"\n"))
	do(t, "POST", srv.URL+guestapi.PathExecute, `{"code":"x","language":"python"}`, "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999", "X-Access-Token", "access-"+id)
	e.runs = []sandbox.Run{
		{ID: "run_a", Status: sandbox.RunFinished, Started: now.Add(time.Minute), Ended: now.Add(2 * time.Minute), Verdict: sandbox.Verdict{Code: sandbox.Timeout, Cause: "too long"}},
		{ID: "run_b", Status: sandbox.RunRunning, Started: now.Add(3 * time.Minute)},
	}
	e.outputs = map[string]sandbox.Output{"run_a": {Stdout: "a\nb", Stderr: "c\n"}}
	all := []string{
		"info process_start: echo one", "info stdout: one", "info stdout: two", "warn stderr: unfinished", "error process_end: exit status 3",
		"info execution_start: code python", "info stdout: 3", "error error: ValueError: no", "info execution_end: code python",
		"info run_start: run run_a", "info stdout: a", "info stdout: b", "warn stderr: c", "error run_end: timeout: too long",
		"info run_start: run run_b",
	}
	reversed := []string{}
	for i := range all {
		reversed = append(reversed, all[len(all)-1-i])
	}
	for query, want := range map[string][]string{
		"":                                all,
		"?limit=2":                        all[:2],
		"?limit=0":                        {},
		"?direction=backward":             reversed,
		"?direction=backward&limit=1":     reversed[:1],
		"?level=warn":                     {all[3], all[4], all[7], all[12], all[13]},
		"?level=error&direction=backward": {all[13], all[7], all[4]},
		"?search=run_":                    {all[9], all[14]},
		"?search=RUN_":                    {},
		fmt.Sprintf("?cursor=%d", now.Add(time.Minute).UnixMilli()):                      all[9:],
		fmt.Sprintf("?cursor=%d&direction=backward", now.Add(2*time.Second).UnixMilli()): {all[1], all[0]},
	} {
		if diff := cmp.Diff(want, logged(t, srv.URL+"/v2/sandboxes/"+id+"/logs"+query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	if diff := cmp.Diff(all[9:11], logged(t, srv.URL+"/sandboxes/"+sandbox.HostID(id)+fmt.Sprintf("/logs?start=%d&limit=2", now.Add(time.Minute).UnixMilli()))); diff != "" {
		t.Error(diff)
	}
	for _, query := range []string{"cursor=x", "limit=-1", "direction=up", "level=loud", "search=" + strings.Repeat("x", 257)} {
		if status, _, body := do(t, "GET", srv.URL+"/v2/sandboxes/"+id+"/logs?"+query, "", "X-API-KEY", "alice"); status != 400 || !strings.Contains(body, strings.Split(query, "=")[0]) {
			t.Errorf("%.20s: status %d: %s", query, status, body)
		}
	}
	if status, _, _ := do(t, "GET", srv.URL+"/v2/sandboxes/"+id+"/logs", "", "X-API-KEY", "mallory"); status != 404 {
		t.Errorf("another's logs: status %d", status)
	}
	if _, _, body := do(t, "GET", srv.URL+"/v2/sandboxes/"+id+"/logs", "", "X-API-KEY", "alice"); strings.Contains(body, "hidden") {
		t.Error("the log has the environment of a program")
	}
}

// TestLogsOfManyLines: a request reads a million lines with little memory, and answers
// with the first ones in its direction.
func TestLogsOfManyLines(t *testing.T) {
	e, s, srv := newTest(t)
	id := e.add("alice", nil)
	e.outputs = map[string]sandbox.Output{}
	for i := range maxLogRuns {
		run := sandbox.Run{
			ID: fmt.Sprintf("run_%02d", i), Status: sandbox.RunFinished,
			Started: now.Add(time.Duration(2*i) * time.Minute), Ended: now.Add(time.Duration(2*i+1) * time.Minute),
		}
		e.runs = append(e.runs, run)
		text := fmt.Sprintf("first %d\n%slast %d\n", i, strings.Repeat("\n", maxRunOutput-20), i)
		e.outputs[run.ID] = sandbox.Output{Stdout: text}
	}
	s.journal.now = func() time.Time { return now.Add(-time.Minute) }
	s.journal.add(id, "info", "oldest", map[string]string{"event_type": "stdout"})
	for query, want := range map[string][]string{
		"?limit=3":                    {"info stdout: oldest", "info run_start: run run_00", "info stdout: first 0"},
		"?limit=2&direction=backward": {"error run_end: ", "info stdout: last 99"},
		"?search=last&limit=2":        {"info stdout: last 0", "info stdout: last 1"},
	} {
		if diff := cmp.Diff(want, logged(t, srv.URL+"/v2/sandboxes/"+id+"/logs"+query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	for _, query := range []string{"", "?direction=backward"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := logged(t, srv.URL+"/v2/sandboxes/"+id+"/logs"+query)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 || len(got) != maxLogs {
			t.Errorf("%q: %d entries took %d MiB", query, len(got), used>>20)
		}
	}
}

// TestJournalIsBounded: the oldest entries go, and long lines are split.
func TestJournalIsBounded(t *testing.T) {
	j := newJournal(time.Now)
	for i := range maxEntries + 5 {
		j.add("a", "info", fmt.Sprint(i), nil)
	}
	if all := j.list("a"); len(all) != maxEntries || all[0].Message != "5" {
		t.Errorf("%d entries from %q on", len(all), all[0].Message)
	}
	p := newProgram(j, "b", "")
	text := strings.Repeat("äöü", maxMessages/3)
	p.output("stdout", []byte(text))
	p.flush()
	size := 0
	for _, e := range j.list("b") {
		size += len(e.Message)
		if !strings.Contains(text, e.Message) {
			t.Fatalf("an entry is not a part of the line: %q", e.Message)
		}
	}
	if size > maxMessages || size < maxMessages-maxMessage {
		t.Errorf("%d bytes are kept", size)
	}
	j.keep([]string{"a"})
	if j.list("b") != nil || j.list("a") == nil {
		t.Error("keep keeps others")
	}
	// A message that is too long ends the reading, and the client gets it all the same.
	long := guestapi.AppendEnvelope(nil, 0, []byte(strings.Repeat("x", maxEnvelope+1)))
	body := j.watchProcess("c", nil, io.NopCloser(bytes.NewReader(long)))
	got, err := io.ReadAll(body)
	if err != nil || !bytes.Equal(got, long) || body.Close() != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestJournalMemory: the journal keeps neither more of a long text than it shows, nor
// long commands without end.
func TestJournalMemory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the first one may leave what finalizers held
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	j := newJournal(time.Now)
	before := heap()
	for i := range 50 {
		j.add("messages", "info", strings.Repeat("x", 1<<20), nil)
		request := guestapi.AppendEnvelope(nil, 0, []byte(`{"process":{"cmd":"`+strings.Repeat("y", 1<<20)+`"}}`))
		p := newProgram(j, fmt.Sprint("commands", i), commandOf(request))
		p.add("info", "process_start", "begun")
	}
	if used := int64(heap()) - int64(before); used > 10<<20 {
		t.Errorf("100 entries take %d MiB", used>>20)
	}
	p := newProgram(j, "short", strings.Repeat("c", maxCommand))
	for range maxEntries {
		p.add("info", "stdout", "x")
	}
	if n := len(j.list("short")); n == 0 || n*maxCommand > maxMessages {
		t.Errorf("%d entries with commands of %d bytes are kept", n, maxCommand)
	}
	if len(j.list("messages")) != 50 {
		t.Error("the entries are gone")
	}
	runtime.KeepAlive(j)
}
