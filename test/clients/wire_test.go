//go:build linux

package clients

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A wire passes the requests of a client over HTTP on to a server, and records how the
// client gave up a call of a tool.
type wire struct {
	url string

	mu      sync.Mutex
	version string   // of the protocol, in the last request with a call of a tool
	signals []string // in their order, each once
}

// newWire serves a wire on the loopback interface until the test ends.
func newWire(t *testing.T, server string) *wire {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Host, r.Out.URL.Scheme, r.Out.Host = target.Host, target.Scheme, target.Host
		},
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	w := &wire{}
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		call := w.note(r, body)
		defer func() {
			// A server that has answered a call ends the response itself.
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
			if call && r.Context().Err() != nil {
				w.signal("closes the request")
			}
		}()
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(front.Close)
	w.url = front.URL + target.Path
	return w
}

// note records a message, and reports whether it is a call of a tool.
func (w *wire) note(r *http.Request, body []byte) bool {
	var m struct {
		Method string
		Params struct{ Reason *string }
	}
	if json.Unmarshal(body, &m) != nil {
		return false
	}
	switch m.Method {
	case "tools/call":
		w.mu.Lock()
		w.version = r.Header.Get("Mcp-Protocol-Version")
		w.mu.Unlock()
		return true
	case "notifications/cancelled":
		reason := "none"
		if m.Params.Reason != nil {
			reason = "`" + *m.Params.Reason + "`"
		}
		w.signal("cancels, reason: " + reason)
	}
	return false
}

func (w *wire) signal(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.signals, text) {
		w.signals = append(w.signals, text)
	}
}

// sent returns the signals of a client, for a cell of the table.
func (w *wire) sent() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.signals) == 0 {
		return "nothing"
	}
	return strings.Join(w.signals, "; ")
}
