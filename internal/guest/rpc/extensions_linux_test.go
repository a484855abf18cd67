package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// TestExtensions: who does not ask for what goes beyond E2B's protocol gets
// nothing of it. Some of E2B's clients refuse fields that they do not know.
func TestExtensions(t *testing.T) {
	h := guesttest.New(t)
	dir := guesttest.UserDir(t, "")
	h.WriteText(dir+"/\xff", "not UTF-8")
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return guesttest.Dialer(h.Socket)(ctx) },
	}}
	defer client.CloseIdleConnections()
	ask := func(path, contentType string, body []byte, extended bool) []byte {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://guest"+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		if extended {
			req.Header.Set(guestapi.HeaderExtensions, "1")
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d, %v: %s", path, resp.StatusCode, err, b)
		}
		return b
	}
	type entry struct {
		Name, Type, Path, Size, Permissions, Owner, Group, ModifiedTime, SymlinkTarget string
		Mode                                                                           int
	}
	strict := func(what string, b []byte, v any) {
		t.Helper()
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			t.Errorf("%s has what E2B's has not: %v: %s", what, err, b)
		}
	}
	for _, extended := range []bool{false, true} {
		list := ask(guestapi.FSListDir, guestapi.ContentTypeUnary, []byte(`{"path":"`+dir+`"}`), extended)
		start := guestapi.AppendEnvelope(nil, 0, []byte(`{"process":{"cmd":"/bin/sh","args":["-c","exit 3"]},"stdin":false}`))
		stream := ask(guestapi.ProcStart, guestapi.ContentTypeStream, start, extended)
		if extended {
			if !strings.Contains(string(list), "rawPath") || !strings.Contains(string(stream), "detail") {
				t.Errorf("asked for, there is nothing beyond E2B's: %s, %s", list, stream)
			}
			continue
		}
		strict("a list", list, &struct{ Entries []entry }{})
		for r := bytes.NewReader(stream); r.Len() > 0; {
			_, msg, err := guestapi.ReadEnvelope(r, nil, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			strict("an event", msg, &struct {
				Event struct {
					Start     struct{ PID int }
					Data      struct{ Stdout, Stderr, PTY string }
					Keepalive struct{}
					End       struct {
						ExitCode      int
						Exited        bool
						Status, Error string
					}
				}
			}{})
		}
	}
}
