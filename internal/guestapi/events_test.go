package guestapi

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestEventsOfTheGuestBefore replays what a guest of the version before sent: its
// sandbox may outlive the server of that version. A file has one message of a
// process, or one event of a context, on each line.
func TestEventsOfTheGuestBefore(t *testing.T) {
	png := json.RawMessage(`"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="`)
	text := func(s string) json.RawMessage { return json.RawMessage(`"` + s + `"`) }
	usage := func(cpu, peak int64) EndDetail { return EndDetail{CPUMillis: cpu, PeakMemoryBytes: peak} }
	signal := func(d EndDetail, n int) EndDetail { d.Signal = n; return d }
	timedOut := func(d EndDetail) EndDetail { d.TimedOut = true; return d }
	for name, want := range map[string][]Event{
		"process-exited": {
			{Data: &DataEvent{Stdout: []byte("out\n")}}, {Data: &DataEvent{Stderr: []byte("err\n")}},
			{End: &End{Status: EndExit, ExitCode: new(3), Text: "exit status 3", Detail: usage(3, 13885440)}},
		},
		"process-killed": {
			{End: &End{Status: EndDied, Text: "signal: segmentation fault", Detail: signal(usage(1, 14016512), 11)}},
		},
		"process-terminal": {
			{Data: &DataEvent{PTY: []byte("on a terminal\r\n")}},
			{End: &End{Status: EndOK, ExitCode: new(0), Text: "exit status 0", Detail: usage(1, 14016512)}},
		},
		"context-result": {
			{Data: &DataEvent{Stdout: []byte("from before\n")}, Late: &Late{Run: 1}},
			{Result: &sandbox.Result{Late: true, Data: map[string]json.RawMessage{"text/plain": text("'shown late'")}}, Late: &Late{Run: 1}},
			{Turn: &Turn{2}},
			{Data: &DataEvent{Stdout: []byte("out \"quoted\" é\n")}}, {Data: &DataEvent{Stderr: []byte("err\n")}},
			{Result: &sandbox.Result{Data: map[string]json.RawMessage{
				"text/plain": text("<__main__.P object at 0x7f6294cc3750>"), "text/html": text("<b>&</b>"), "image/png": png,
			}}},
			{Result: &sandbox.Result{
				Data:     map[string]json.RawMessage{"text/plain": text("<__main__.Q object at 0x7f6294307a90>"), "image/png": text("bm9uZQ==")},
				Previews: map[string]sandbox.Preview{"image/png": {Why: "it is no picture of the type image/png"}},
			}},
			{Result: &sandbox.Result{Main: true, Data: map[string]json.RawMessage{"text/plain": text("42")}}},
			{End: &End{Status: EndOK, Text: "ok", Context: true, Detail: usage(32, 14036992)}},
		},
		"context-raised": {
			{Turn: &Turn{3}}, {Data: &DataEvent{Stdout: []byte("before\n")}},
			{Error: &sandbox.RunError{Name: "ZeroDivisionError", Value: "division by zero", Line: 2, Source: "1/0", Traceback: "Traceback (most recent call last):\n" +
				"  File \"<cell 3>\", line 2, in <module>\n    1/0\n    ~^~\nZeroDivisionError: division by zero\n"}},
			{End: &End{Status: EndError, Text: "error", Context: true, Detail: usage(3, 14102528)}},
		},
		"context-interrupted": {
			{Turn: &Turn{4}},
			{Error: &sandbox.RunError{Name: "KeyboardInterrupt", Line: 1, Source: "while True: pass", Traceback: "Traceback (most recent call last):\n" +
				"  File \"<cell 4>\", line 1, in <module>\n    while True: pass\nKeyboardInterrupt\n"}},
			{End: &End{Status: EndInterrupted, Text: "interrupted", Context: true, TimedOut: true, Detail: timedOut(usage(240, 14102528))}},
		},
		"context-died": {
			{Turn: &Turn{5}},
			{End: &End{Status: EndDied, ExitCode: new(3), Text: "died", Context: true, StateLost: true,
				Cause: "the interpreter exited (exit status 3)", Detail: usage(320, 13869056)}},
		},
		"context-fresh": {
			{Notice: "the interpreter exited (exit status 3); state lost; started fresh"}, {Turn: &Turn{1}},
			{Result: &sandbox.Result{Main: true, Data: map[string]json.RawMessage{"text/plain": text("1")}}},
			{End: &End{Status: EndOK, Text: "ok", Context: true, Detail: usage(0, 11153408)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sent, err := os.ReadFile(filepath.Join("testdata", "guest-before", name+".jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			var stream *Events
			if strings.HasPrefix(name, "context-") {
				stream, err = newFakeGuest(t, 10, answer(200, nil, string(sent))).Execute(t.Context(), "", &ExecuteRequest{}, nil)
			} else {
				var body []byte
				for line := range bytes.Lines(sent) {
					body = AppendEnvelope(body, 0, bytes.TrimSuffix(line, []byte("\n")))
				}
				body = AppendEnvelope(body, FlagEndStream, []byte("{}"))
				stream, err = newFakeGuest(t, 10, answer(200, nil, string(body))).Start(t.Context(), &StartRequest{}, StartOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			var got []Event
			for {
				ev, err := stream.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, *ev)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEndsOfUnknownKind takes an end that this version does not know as a failure.
func TestEndsOfUnknownKind(t *testing.T) {
	end := endOfCode(&ExecutionEnd{Status: "paused\n", Signal: 9})
	want := End{Status: EndError, Text: "paused", Context: true, Detail: EndDetail{Signal: 9}}
	if end.Text = strings.TrimSpace(end.Text); *end != want {
		t.Errorf("%+v, want %+v", *end, want)
	}
	if end := endOfProcess(&EndEvent{Exited: true, Error: "fork: no"}); end.Status != EndNotRun || end.Cause != "fork: no" || end.Code() != -1 {
		t.Errorf("%+v", *end)
	}
}
