package guestapi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func ptr[T any](v T) *T { return &v }

// TestExecuteEvents has each kind of event as it is on the wire, which is E2B's
// form where E2B has it, and back.
func TestExecuteEvents(t *testing.T) {
	for _, c := range []struct {
		wire string
		ev   ExecuteEvent
	}{
		{`{"type":"number_of_executions","execution_count":3}`, ExecuteEvent{Type: ExecuteCount, ExecutionCount: 3}},
		{
			`{"html":"<b>","image/gif":"R0lG","is_main_result":true,"png":"iVBO","text":"2","type":"result"}`,
			ExecuteEvent{Type: ExecuteResult, Result: &sandbox.Result{Main: true, Data: map[string]json.RawMessage{
				"text/plain": json.RawMessage(`"2"`), "text/html": json.RawMessage(`"<b>"`),
				"image/png": json.RawMessage(`"iVBO"`), "image/gif": json.RawMessage(`"R0lG"`),
			}}},
		},
		{
			`{"png":"iVBO","previews":{"image/png":{"data":"AQI="},"image/gif":{"why":"large"}},"is_main_result":false,"type":"result"}`,
			ExecuteEvent{Type: ExecuteResult, Result: &sandbox.Result{
				Data:     map[string]json.RawMessage{"image/png": json.RawMessage(`"iVBO"`)},
				Previews: map[string]sandbox.Preview{"image/png": {Data: "AQI="}, "image/gif": {Why: "large"}},
			}},
		},
		{
			`{"chart":{"type":"line"},"is_main_result":false,"type":"result"}`,
			ExecuteEvent{Type: ExecuteResult, Result: &sandbox.Result{Data: map[string]json.RawMessage{sandbox.MIMEChart: json.RawMessage(`{"type":"line"}`)}}},
		},
		{
			`{"type":"error","name":"ValueError","value":"no","traceback":"T","line":2,"source":"x"}`,
			ExecuteEvent{Type: ExecuteError, Error: &RunError{Name: "ValueError", Value: "no", Traceback: "T", Line: 2, Source: "x"}},
		},
		{`{"type":"input_request","prompt":"who? "}`, ExecuteEvent{Type: ExecuteInput, Prompt: "who? "}},
		{`{"type":"late","text":"x","stream":"stderr","run":4,"dropped":9}`, ExecuteEvent{Type: ExecuteLate, Text: "x", Stream: Stderr, Run: 4, Dropped: 9}},
		{
			`{"is_main_result":false,"run":4,"text":"5","type":"late"}`,
			ExecuteEvent{Type: ExecuteLate, Run: 4, Result: &sandbox.Result{Late: true, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"5"`)}}},
		},
		{`{"type":"notice","text":"n"}`, ExecuteEvent{Type: ExecuteNotice, Text: "n"}},
		{
			`{"type":"end","end":{"status":"exit","exit_code":0,"state_lost":true,"timed_out":true,"detail":{"memoryKill":true}}}`,
			ExecuteEvent{Type: ExecuteEnd, End: &ExecutionEnd{Status: EndExit, ExitCode: ptr(0), StateLost: true, TimedOut: true, Detail: EndDetail{MemoryKill: true}}},
		},
	} {
		got, err := json.Marshal(c.ev)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(c.wire), &b) != nil {
			t.Fatalf("bad JSON: %s or %s", got, c.wire)
		}
		if diff := cmp.Diff(b, a); diff != "" {
			t.Errorf("%s is written as %s\n%s", c.wire, got, diff)
		}
		back, err := DecodeExecuteEvent([]byte(c.wire + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", c.wire, err)
		}
		if diff := cmp.Diff(&c.ev, back); diff != "" {
			t.Errorf("%s is read as\n%s", c.wire, diff)
		}
	}
}

// TestPicturesStayText has base64 with stray bits at its end, which decoding and
// encoding it again would change.
func TestPicturesStayText(t *testing.T) {
	ev, err := DecodeExecuteEvent([]byte(`{"type":"result","png":"AQJ=","previews":{"image/png":{"data":"AQK="}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if data, shown := string(ev.Result.Data["image/png"]), ev.Result.Previews["image/png"].Data; data != `"AQJ="` || shown != "AQK=" {
		t.Errorf("%s and %s", data, shown)
	}
}

func TestExecuteEventsThatAreNone(t *testing.T) {
	for _, line := range []string{"", "{", "[]", `{"type":3}`, `{"type":"end"}`, `{"type":"result","is_main_result":"yes"}`, `{"type":"result","previews":[]}`,
		`{"type":"result","previews":{` + strings.Repeat(`"a":{},`, maxResultKeys) + `"a":{}}}`, `{"type":"error","line":"x"}`} {
		if ev, err := DecodeExecuteEvent([]byte(line)); err == nil && ev != nil {
			t.Errorf("%s gave %+v", line, ev)
		}
	}
	if ev, err := DecodeExecuteEvent([]byte(`{"type":"end_of_something","x":1}`)); ev != nil || err != nil {
		t.Errorf("an unknown kind gave %+v, %v", ev, err)
	}
}

// TestTextEvents has output be the same by hand and by encoding/json.
func TestTextEvents(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, text := range []string{
		"x", "line\nline\r\n\ttab", `quote " and \ slash`, "größe €\U0001f600", "\x00\x01\x1f\x7f", "<&>\u2028", `","timestamp":"`, `\`, `"`, strings.Repeat("long ", 50000),
	} {
		line := AppendTextEvent(nil, ExecuteStdout, []byte(text), at)
		var plain struct{ Type, Text, Timestamp string }
		if err := json.Unmarshal(line, &plain); err != nil {
			t.Fatalf("%q: %v in %s", text, err, line)
		}
		if plain.Type != "stdout" || plain.Text != text || plain.Timestamp != "2026-01-02T03:04:05.000006Z" {
			t.Errorf("%.80q is written as %+.80v", text, plain)
		}
		if ev, err := DecodeExecuteEvent(line); err != nil || ev.Text != text || ev.Type != ExecuteStdout {
			t.Errorf("%.80q is read as %+.80v, %v", text, ev, err)
		}
	}
}

func FuzzDecodeExecuteEvent(f *testing.F) {
	f.Add(AppendTextEvent(nil, ExecuteStderr, []byte("a\n\"b\\"), time.Unix(1, 0)))
	f.Add([]byte(`{"type":"stdout","text":"\u0041\n","timestamp":"x"}`))
	f.Add([]byte(`{"type":"result","text":"2","is_main_result":true,"a/b":[1]}`))
	f.Add([]byte(`{"type":"end","end":{"status":"ok","detail":{}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		ev, err := DecodeExecuteEvent(line)
		if err != nil || ev == nil {
			return
		}
		if !utf8.ValidString(ev.Text) {
			t.Errorf("%q gave text that is not UTF-8", line)
		}
		// What is read by hand is what encoding/json reads.
		if fast := decodeText(line); fast != nil && json.Valid(line) {
			var plain struct {
				Type ExecuteType `json:"type"`
				Text string      `json:"text"`
			}
			if err := json.Unmarshal(line, &plain); err == nil && plain.Type == fast.Type && plain.Text != fast.Text {
				t.Errorf("%q is %q by hand and %q by JSON", line, fast.Text, plain.Text)
			}
		}
	})
}
