package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A lineClient speaks to a server over stdio by lines.
type lineClient struct {
	t     *testing.T
	in    io.WriteCloser
	lines *bufio.Scanner
	done  chan error
}

func newLineClient(t *testing.T, s *Server) *lineClient {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &lineClient{t: t, in: inW, lines: bufio.NewScanner(outR), done: make(chan error, 1)}
	c.lines.Buffer(nil, 16<<20)
	go func() { c.done <- s.ServeStdio(t.Context(), inR, outW) }()
	t.Cleanup(func() { inW.Close() })
	return c
}

func (c *lineClient) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// reply reads the next line.
func (c *lineClient) reply() string {
	c.t.Helper()
	if !c.lines.Scan() {
		c.t.Fatalf("the output ended: %v; ServeStdio returned %v", c.lines.Err(), <-c.done)
	}
	return c.lines.Text()
}

// errorReply reads the next line, and returns the id and code of the error that
// it must be.
func (c *lineClient) errorReply() string {
	c.t.Helper()
	var m struct {
		ID    json.RawMessage
		Error struct{ Code int64 }
	}
	line := c.reply()
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		c.t.Fatalf("%q: %v", line, err)
	}
	return fmt.Sprintf("%s %d", m.ID, m.Error.Code)
}

// TestStdioFallsBack has clients that ask for the newest version first, and send
// initialize because the answer took too long. @ai-sdk/mcp waits a second.
func TestStdioFallsBack(t *testing.T) {
	s, _ := newTestServer(t, nil)
	c := newLineClient(t, s)
	for range 2 {
		c.send(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + modernMeta + `}}`)
		if line := c.reply(); !strings.Contains(line, "supportedVersions") {
			t.Fatalf("server/discover: %s", line)
		}
		c.send(initialize)
		if line := c.reply(); !strings.Contains(line, `"protocolVersion":"2025-06-18"`) {
			t.Fatalf("initialize: %s", line)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		if line := c.reply(); !strings.Contains(line, `"run_code"`) {
			t.Fatalf("tools/list: %.300s", line)
		}
	}
	c.send(initialize)
	if got := c.errorReply(); got != "1 0" {
		t.Errorf("a second initialize of one session: error %s", got)
	}
	c.send(`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{` + modernMeta + `}}`)
	if got := c.errorReply(); got != "7 -32601" {
		t.Errorf("initialize of the era without it: error %s", got)
	}
	c.in.Close()
	if err := <-c.done; err != nil {
		t.Errorf("ServeStdio: %v", err)
	}
}

func TestStdioBadLines(t *testing.T) {
	s, _ := newTestServer(t, func(o *Options) { o.MaxMessageBytes = 200_000 })
	c := newLineClient(t, s)
	c.send(initialize)
	c.reply()
	for _, tt := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":4,`, "null -32700"},
		{`hello`, "null -32700"},
		{"\xff\xfe", "null -32700"},
		{`42`, "null -32600"},
		{`{"id":5}`, "5 -32600"},
		{`{"jsonrpc":"1.0","id":"x","method":"ping"}`, `"x" -32600`},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, "null -32600"},
		{`[]`, "null -32600"},
		{`[{"jsonrpc":"2.0","id":6,"method":"ping"}]`, "null -32600"}, // 2025-06-18 has no batches
		{`{"jsonrpc":"2.0","id":7,"method":"no/such"}`, "7 -32601"},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"run_cod"}}`, "8 -32602"},
		{`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":[]}`, "9 -32602"},
		{`{"jsonrpc":"2.0","id":10,"method":"ping","params":{"x":"` + strings.Repeat("y", 300_000) + `"}}`, "null -32600"},
	} {
		c.send(tt.line)
		if got := c.errorReply(); got != tt.want {
			t.Errorf("%.60q: %s, want %s", tt.line, got, tt.want)
		}
	}
	c.send("\n  \r\n" + `{"jsonrpc":"2.0","id":11,"method":"ping"}` + "\r")
	if got := c.reply(); got != `{"jsonrpc":"2.0","id":11,"result":{}}` {
		t.Errorf("a ping after all that: %s", got)
	}
	c.in.Close()
	if err := <-c.done; err != nil {
		t.Errorf("ServeStdio: %v", err)
	}
}

func TestStdioBatches(t *testing.T) {
	s, _ := newTestServer(t, nil)
	c := newLineClient(t, s)
	c.send(strings.Replace(initialize, "2025-06-18", "2025-03-26", 1))
	c.reply()
	c.send(`[{"jsonrpc":"2.0","id":6,"method":"ping"},{"jsonrpc":"2.0","id":7,"method":"ping"}]`)
	var replies []struct{ ID int }
	if err := json.Unmarshal([]byte(c.reply()), &replies); err != nil || len(replies) != 2 {
		t.Errorf("a batch of two in 2025-03-26: %v, %v", replies, err)
	}
}

// TestStdioEnds ends the input in the middle of a call: its run is stopped
// before ServeStdio returns.
func TestStdioEnds(t *testing.T) {
	for name, end := range map[string]func(c *lineClient, cancel func()){
		"input":   func(c *lineClient, _ func()) { c.in.Close() },
		"context": func(_ *lineClient, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			s, e := newTestServer(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			go io.Copy(io.Discard, outR)
			done := make(chan error, 1)
			go func() { done <- s.ServeStdio(ctx, inR, outW) }()
			c := &lineClient{t: t, in: inW}
			c.send(initialize)
			c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"sleep 1h"}}}`)
			eventually(t, "a run", func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				return len(e.runs) == 1
			})
			end(c, cancel)
			select {
			case err := <-done:
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("ServeStdio: %v", err)
				}
				if (err == nil) != (name == "input") {
					t.Errorf("ServeStdio: %v after the end of the %s", err, name)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("ServeStdio did not return")
			}
			if e.stopped() != 1 {
				t.Error("the run goes on")
			}
		})
	}
}

// TestStdioProcess starts a server as clients do, and looks at every byte it
// writes: there is nothing but the protocol on standard output.
func TestStdioProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "serve-stdio")
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &lineClient{t: t, in: in, lines: bufio.NewScanner(out)}
	c.lines.Buffer(nil, 16<<20)
	c.send(initialize)
	c.reply()
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"panic"}}}`)
	c.reply()
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"out 42"}}}`)
	if got := c.reply(); !strings.Contains(got, `"stdout":"42\n"`) {
		t.Errorf("the third reply is %s", got)
	}
	in.Close()
	if c.lines.Scan() {
		t.Errorf("standard output has more: %q", c.lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server exited with %v", err)
	}
	if !strings.Contains(stderr.String(), "tool panicked") {
		t.Errorf("the log lacks the panic:\n%s", &stderr)
	}
}

// TestWire compares what is said on the wire, byte by byte, in each version.
func TestWire(t *testing.T) {
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2099-01-01"} {
		t.Run(version, func(t *testing.T) {
			s, _ := newTestServer(t, func(o *Options) { o.Tools = []string{"stop_sandbox"} })
			c := newLineClient(t, s)
			var got bytes.Buffer
			for _, line := range []string{
				strings.Replace(initialize, "2025-06-18", version, 1),
				`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
				`{"jsonrpc":"2.0","id":2,"method":"ping"}`,
				`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`,
				`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"stop_sandbox","arguments":{"sandbox_id":"sbx_none"}}}`,
				`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"nothing","arguments":{}}}`,
				`{"jsonrpc":"2.0","id":6,"method":"resources/templates/list"}`,
				`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"run://none/output"}}`,
				`{"jsonrpc":"2.0","id":8,"method":"prompts/list"}`,
			} {
				fmt.Fprintf(&got, "> %s\n", line)
				c.send(line)
				if strings.Contains(line, `"id"`) {
					fmt.Fprintf(&got, "< %s\n", c.reply())
				}
			}
			golden := "testdata/wire/" + version + ".txt"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("the wire differs from %s (-want +got):\n%s", golden, diff)
			}
		})
	}
}
