package guesttest

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// RawClient speaks Connect's JSON as a stranger would, over HTTP/1.1.
type RawClient struct {
	t *testing.T
	// HTTP sends requests of any form.
	HTTP http.Client
}

// NewRawClient returns a client of h.
func NewRawClient(t *testing.T, h *Host) *RawClient {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return Dialer(h.Socket)(ctx) },
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &RawClient{t, http.Client{Transport: transport}}
}

// Post sends body, and returns the status and the body of the answer.
func (c *RawClient) Post(path, contentType, body string) (int, string) {
	c.t.Helper()
	resp, err := c.HTTP.Post("http://guest"+path, contentType, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// UserDir makes a directory that the sandbox's user owns, in the file system
// of base or the usual one.
func UserDir(t testing.TB, base string) string {
	t.Helper()
	dir, err := os.MkdirTemp(base, "files")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, account.UserID, account.UserID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// WriteText writes a file.
func (h *Host) WriteText(path, text string) {
	h.T.Helper()
	if _, err := h.Write(h.T.Context(), path, strings.NewReader(text), guestapi.WriteOptions{}); err != nil {
		h.T.Fatal(err)
	}
}

// ReadText reads a file.
func (h *Host) ReadText(path string) string {
	h.T.Helper()
	r, _, err := h.Read(h.T.Context(), path, 0, -1, guestapi.FileOptions{})
	if err != nil {
		h.T.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		h.T.Fatal(err)
	}
	return string(b)
}
