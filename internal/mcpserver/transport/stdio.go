package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// serveStdio serves one client, the local user, until in or ctx ends; see
// [Server.ServeStdio].
func serveStdio(ctx context.Context, o Options, c *calls, in io.ReadCloser, out io.WriteCloser) error {
	w := &lockedWriter{w: out}
	f := newFrames(in, w, o.MaxMessageBytes)
	for {
		err := serveSession(ctx, o, c, f)
		if !f.fallsBack.Load() {
			return err
		}
		f.fallsBack.Store(false)
		f.modern = false
	}
}

// serveSession serves one session: until the client ends or falls back.
func serveSession(ctx context.Context, o Options, c *calls, f *frames) error {
	ss, err := o.MCP.Connect(withLife(auth.NewContext(ctx, auth.Local())), namedTransport{&mcp.IOTransport{
		Reader:        f,
		Writer:        sessionWriter{f},
		MaxLineLength: -1, // frames bounds it
	}, c, "stdio " + rand.Text()}, nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- ss.Wait() }()
	select {
	case err = <-ended:
		if clientGone(err) {
			err = nil
		}
	case <-ctx.Done():
		err = ctx.Err()
		ss.Close()
		<-ended
	}
	ss.Close()
	return err
}

// clientGone reports whether a stream ended because the client closed its end.
func clientGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE)
}

// A lockedWriter writes one message at a time. Both the session and its frames
// write to it.
type lockedWriter struct {
	mu sync.Mutex
	w  io.WriteCloser
}

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(b)
}

func (w *lockedWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Close()
}

// frames passes the valid messages of a client on to the SDK and answers invalid
// lines itself. Without it, the SDK ends the session at the first invalid line.
type frames struct {
	in   io.ReadCloser
	r    *bufio.Reader
	out  *lockedWriter
	most int64

	rest    []byte // the unread part of the current line
	batches bool   // the client's version of the protocol has batches
	modern  bool   // the session began with a request of the era without initialize

	// fallsBack ends the session without its streams. The client asked for the
	// version of 2026, waited too long for the answer, and sent initialize, which is
	// then in rest. The SDK refuses initialize in the session that the first request
	// has begun, so it begins another.
	fallsBack atomic.Bool
}

func newFrames(in io.ReadCloser, out *lockedWriter, most int64) *frames {
	return &frames{in: in, r: bufio.NewReaderSize(in, 64<<10), out: out, most: most, batches: true}
}

func (f *frames) Close() error {
	if f.fallsBack.Load() {
		return nil
	}
	return f.in.Close()
}

// A sessionWriter is the writer of one session.
type sessionWriter struct{ f *frames }

func (w sessionWriter) Write(b []byte) (int, error) { return w.f.out.Write(b) }

func (w sessionWriter) Close() error {
	if w.f.fallsBack.Load() {
		return nil
	}
	return w.f.out.Close()
}

func (f *frames) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		line, err := f.line()
		if err != nil {
			return 0, err
		}
		if len(line) > 0 {
			f.rest = append(line, '\n')
		}
		if f.fallsBack.Load() {
			return 0, io.EOF
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// line reads one line. It returns an empty line if it has answered the line
// itself. The last line needs no line end.
func (f *frames) line() ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := f.r.ReadSlice('\n')
		if tooLong = tooLong || int64(len(line)+len(part)) > f.most; tooLong {
			line = line[:0]
		} else {
			line = append(line, part...)
		}
		if err == nil {
			break
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(line) == 0 && !tooLong {
			return nil, err
		}
		break
	}
	if tooLong {
		return nil, f.refuse(nil, jsonrpc.CodeInvalidRequest, "the message is longer than this server takes")
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil, nil
	}
	return f.checked(line)
}

// checked returns the line if it is a valid message or batch. Otherwise it
// answers the line and returns nil.
func (f *frames) checked(line []byte) ([]byte, error) {
	if !json.Valid(line) {
		return nil, f.refuse(nil, jsonrpc.CodeParseError, "the line is not JSON")
	}
	var messages []json.RawMessage
	if line[0] != '[' {
		messages = append(messages, line)
	} else {
		if err := json.Unmarshal(line, &messages); err != nil || len(messages) == 0 {
			return nil, f.refuse(nil, jsonrpc.CodeInvalidRequest, "the batch is empty")
		}
		if !f.batches {
			return nil, f.refuse(nil, jsonrpc.CodeInvalidRequest, "this version of the protocol has no batches")
		}
	}
	for _, m := range messages {
		peeked, _ := peek(m)
		if _, err := jsonrpc.DecodeMessage(m); err != nil {
			return nil, f.refuse(peeked.id(), jsonrpc.CodeInvalidRequest, "not a JSON-RPC 2.0 message: "+err.Error())
		}
		f.noteVersion(m)
		_, modern := peeked.Params.Meta[mcp.MetaKeyProtocolVersion]
		if f.modern && !modern && peeked.Method == "initialize" {
			f.fallsBack.Store(true)
		}
		f.modern = f.modern || modern
	}
	return line, nil
}

// noteVersion records whether the version that a client requests has batches.
// Only two versions have them.
func (f *frames) noteVersion(m json.RawMessage) {
	var init struct {
		Method string `json:"method"`
		Params struct {
			Version string `json:"protocolVersion"`
		} `json:"params"`
	}
	if json.Unmarshal(m, &init) == nil && init.Method == "initialize" {
		f.batches = init.Params.Version == "2024-11-05" || init.Params.Version == "2025-03-26"
	}
}

// refuse answers an invalid line with an error.
func (f *frames) refuse(id json.RawMessage, code int64, text string) error {
	_, err := f.out.Write(append(errorMessage(id, code, text), '\n'))
	return err
}
