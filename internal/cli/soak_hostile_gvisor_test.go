//go:build linux && !nogvisor

package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/e2bapi"
)

// mallory is the name of the hostile principal's token.
const mallory = "mallory"

// How many of each kind of thing the hostile principal has at one time.
const (
	malloryBodies  = 40 // bodies that never come, more than a full server once took
	malloryCallers = 4  // of tools
)

// bombCode shows a picture of 6400 × 6500 pixels of 16 bits, which is 333 MB
// when it is decoded and 323 kB when it is not.
const bombCode = `import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
c = zlib.compressobj(9)
rows = b"".join([c.compress(bytes(1 + 6400 * 8)) for _ in range(6500)] + [c.flush()])
class Bomb:
    def _repr_png_(self):
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 6400, 6500, 16, 6, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
Bomb()`

// attack is a hostile principal that takes all it can of the server, until ctx
// ends: places, sessions, bodies, memory by pictures, disk, processes. Nothing of
// it is expected to succeed or to fail; the other clients must not notice.
func (s *soak) attack(ctx context.Context) {
	var wg sync.WaitGroup
	loop := func(f func(context.Context)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				f(ctx)
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	loop(s.hoardPlaces)
	loop(s.hoardSessions)
	for range malloryBodies {
		loop(s.hoardBodies)
	}
	tool := func(arguments map[string]any) {
		loop(func(ctx context.Context) {
			arguments["timeout_seconds"] = 20
			if r, err := s.toolAs(ctx, mallory, "run_code", arguments); err == nil && r.SandboxID != "" {
				s.mu.Lock()
				s.ids[r.SandboxID] = true
				s.mu.Unlock()
			}
		})
	}
	tool(map[string]any{"code": bombCode})
	tool(map[string]any{"language": "sh", "stateless": true, "workspace": mallory, "code": "head -c 200000000 /dev/zero > /data/full; sleep 5"})
	tool(map[string]any{"language": "sh", "stateless": true, "code": "f() { f | f & }; f; sleep 5"})
	tool(map[string]any{"language": "sh", "stateless": true, "code": "yes flood | head -c 100000000"})
	wg.Wait()
}

// post sends a request as the hostile principal, and drops the answer.
func (s *soak) post(ctx context.Context, path, header, key, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set(header, key)
	if res, err := s.client.Do(req); err == nil {
		io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
		res.Body.Close()
	}
}

// hoardPlaces makes a sandbox that lives for an hour and does not rest.
func (s *soak) hoardPlaces(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s.post(ctx, "/e2b/sandboxes", "X-API-Key", e2bapi.Key(s.tokens[mallory]), `{"templateID":"base","timeout":3600}`)
}

// hoardSessions opens a session, and never ends it.
func (s *soak) hoardSessions(ctx context.Context) {
	s.post(ctx, "/mcp", "Authorization", "Bearer "+s.tokens[mallory],
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"m","version":"1"}}}`)
}

// hoardBodies announces 8 MiB, and sends one byte.
func (s *soak) hoardBodies(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	address := strings.TrimPrefix(s.url, "http://")
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{",
		address, s.tokens[mallory], 8<<20)
	defer context.AfterFunc(ctx, func() { c.Close() })()
	io.Copy(io.Discard, c) // until the server has enough of it, or it is time for another
}
