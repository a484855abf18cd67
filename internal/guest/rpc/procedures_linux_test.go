package rpc_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Requests of any form get an answer of Connect's form.
func TestRawRequests(t *testing.T) {
	h := guesttest.New(t)
	c := guesttest.NewRawClient(t, h)
	const unary, streaming = "application/json", "application/connect+json"
	envelope := func(flags byte, msg string) string {
		return string(guestapi.AppendEnvelope(nil, flags, []byte(msg)))
	}
	for name, tc := range map[string]struct {
		path, contentType, body string
		status                  int
		want                    string
	}{
		"unknown procedure": {"/process.Process/Fly", unary, "{}", 404, `{"code":"unimplemented","message":"no such procedure: /process.Process/Fly"}`},
		"unknown path":      {"/x", unary, "{}", 404, "unimplemented"},
		"media type":        {guestapi.ProcList, "text/plain", "{}", 415, ""},
		"stream as unary":   {guestapi.ProcStart, unary, "{}", 415, ""},
		"no JSON":           {guestapi.ProcList, unary, "{", 400, "invalid_argument"},
		"unknown fields":    {guestapi.ProcList, unary, `{"a":1}`, 200, `{"processes":[]}`},
		"wrong type":        {guestapi.ProcSendSignal, unary, `{"process":{"pid":"x"}}`, 400, "invalid_argument"},
		"negative pid":      {guestapi.ProcSendSignal, unary, `{"process":{"pid":-1}}`, 400, "invalid_argument"},
		"too long":          {guestapi.FSStat, unary, `{"path":"` + strings.Repeat("x", guestapi.MaxUnaryRequest) + `"}`, 400, "exceeds"},
		"empty stream":      {guestapi.ProcStart, streaming, "", 200, "canceled"},
		"cut envelope":      {guestapi.ProcStart, streaming, "\x00\x00\x00\x00\x09{}", 200, "canceled"},
		"huge envelope":     {guestapi.ProcStart, streaming, "\x00\xff\xff\xff\xff{}", 200, "exceeds"},
		"compressed":        {guestapi.ProcStart, streaming, envelope(1, "{}"), 200, "unknown flags"},
		"no command":        {guestapi.ProcStart, streaming, envelope(0, "{}"), 200, "no command"},
		"a run": {guestapi.ProcStart, streaming, envelope(0, `{"process":{"cmd":"/bin/echo","args":["hi"],"cwd":"/"},"stdin":false}`), 200,
			`{"event":{"data":{"stdout":"aGkK"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := c.Post(tc.path, tc.contentType, tc.body)
			if status != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("%d %q, want %d %q", status, body, tc.status, tc.want)
			}
		})
	}
	resp, err := c.HTTP.Get("http://guest" + guestapi.ProcList)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 405 {
		t.Errorf("GET: %d", resp.StatusCode)
	}
}

// A stream without events says now and then that it lives.
func TestKeepalive(t *testing.T) {
	h := guesttest.New(t)
	c := guesttest.NewRawClient(t, h)
	body := guestapi.AppendEnvelope(nil, 0, []byte(`{"process":{"cmd":"sleep","args":["1.5"],"cwd":"/"},"stdin":false}`))
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://guest"+guestapi.ProcStart, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", guestapi.ContentTypeStream)
	req.Header.Set("Keepalive-Ping-Interval", "1")
	began := time.Now()
	resp, err := c.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var events []string
	for {
		_, msg, err := guestapi.ReadEnvelope(resp.Body, nil, guestapi.MaxStreamMessage)
		if err != nil {
			break
		}
		events = append(events, string(msg[:min(len(msg), 24)]))
	}
	want := []string{`{"event":{"start":{"pid"`, `{"event":{"keepalive":{}`, `{"event":{"end":{"exitCo`, `{}`}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("after %v (-want +got):\n%s", time.Since(began), diff)
	}
}
