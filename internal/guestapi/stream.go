package guestapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// errTruncated is the error of a stream that ended without its last envelope.
var errTruncated = errors.New("stream broke off")

// stream reads the envelopes of a server stream. It is for one reader.
type stream struct {
	ctx  context.Context // of the call, to distinguish its end from the guest's
	op   string
	body io.ReadCloser
	buf  []byte
}

// open opens a server stream. In Connect's protocol, the first call of next
// returns an error that the guest finds at once.
func (c *Client) open(ctx context.Context, op, procedure, user string, timeout time.Duration, in any) (*stream, error) {
	msg, err := json.Marshal(in)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s: encode request: %w", op, err)
	}
	if len(msg) > MaxUnaryRequest {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s: request of %d bytes exceeds %d", op, len(msg), MaxUnaryRequest)
	}
	body := AppendEnvelope(make([]byte, 0, envelopeHeader+len(msg)), 0, msg)
	req, err := newRequest(ctx, http.MethodPost, procedure, bytes.NewReader(body), user)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "%s: %w", op, err)
	}
	req.Header.Set("Content-Type", ContentTypeStream)
	req.Header.Set(HeaderProtocolVersion, "1")
	// The header has ten digits at most; that is 115 days. A longer timeout is none
	// for the guest.
	if ms := max(timeout.Milliseconds(), 1); timeout > 0 && ms <= MaxTimeoutMillis {
		req.Header.Set(HeaderTimeout, strconv.FormatInt(ms, 10))
	}
	resp, err := c.do(op, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer closeBody(resp)
		return nil, answered(ctx, op, resp)
	}
	return &stream{ctx: ctx, op: op, body: resp.Body}, nil
}

// next returns the next message, valid until the following call. At the end of
// the stream it returns io.EOF, or the error that the guest sent.
func (s *stream) next() ([]byte, error) {
	flags, msg, err := ReadEnvelope(s.body, s.buf, MaxStreamMessage)
	if err == io.EOF {
		err = errTruncated
	}
	if err != nil {
		return nil, lost(s.ctx, s.op, err)
	}
	s.buf = msg[:0]
	switch flags {
	case 0:
		return msg, nil
	case FlagEndStream:
		var end EndStream
		if err := json.Unmarshal(msg, &end); err != nil {
			return nil, lost(s.ctx, s.op, fmt.Errorf("decode end of stream: %w", err))
		}
		if end.Error != nil {
			return nil, sandbox.Errorf(end.Error.Code.Kind(), "%s: %s", s.op, cleanText(end.Error.Error()))
		}
		return nil, io.EOF
	}
	return nil, lost(s.ctx, s.op, fmt.Errorf("unknown flags %#x of a message", flags))
}

// errOrTruncated returns err. For io.EOF it returns the error of a truncated
// stream.
func (s *stream) errOrTruncated(err error) error {
	if err == io.EOF {
		return lost(s.ctx, s.op, errTruncated)
	}
	return err
}

// processEvents reads the events of a process from its stream.
type processEvents struct{ s *stream }

// startProcess reads the first event of a process stream.
func startProcess(s *stream) (*Events, error) {
	for {
		msg, err := s.next()
		if err != nil {
			s.body.Close()
			return nil, s.errOrTruncated(err)
		}
		ev, err := DecodeEvent(msg)
		if err == nil && ev != nil && ev.Start == nil && ev.Keepalive == nil {
			err = errors.New("stream does not begin with a start")
		}
		if err != nil {
			s.body.Close()
			return nil, lost(s.ctx, s.op, err)
		}
		if ev != nil && ev.Start != nil {
			return &Events{source: processEvents{s}, pid: ev.Start.PID}, nil
		}
	}
}

func (p processEvents) next() (*Event, error) {
	msg, err := p.s.next()
	if err != nil {
		return nil, p.s.errOrTruncated(err)
	}
	ev, err := DecodeEvent(msg)
	if err == nil && ev != nil && ev.Start != nil {
		err = errors.New("second start in a stream")
	}
	if err != nil {
		return nil, lost(p.s.ctx, p.s.op, err)
	}
	if ev == nil {
		return nil, nil
	}
	return ofProcess(ev), nil
}

// finish reads the last envelope, so that the guest sees a complete stream. The
// envelope's contents are ignored.
func (p processEvents) finish() {
	defer closeLater(p.s.body)()
	if _, err := p.s.next(); err == io.EOF {
		io.CopyN(io.Discard, p.s.body, 1)
	}
	p.s.body.Close()
}

func (p processEvents) close() error { return p.s.body.Close() }

// A Watcher is a stream of changes in files. It is for one reader. Close may be
// called from another goroutine.
type Watcher struct{ s *stream }

// Next returns the next change. If the stream breaks, the error is of kind
// Unavailable.
func (w *Watcher) Next() (*FilesystemEvent, error) {
	for {
		m, err := w.message()
		if err != nil {
			return nil, err
		}
		if m.Filesystem != nil {
			return m.Filesystem, nil
		}
	}
}

func (w *Watcher) message() (*WatchMessage, error) {
	msg, err := w.s.next()
	if err != nil {
		return nil, w.s.errOrTruncated(err)
	}
	var m WatchMessage
	if err := json.Unmarshal(msg, &m); err != nil {
		return nil, lost(w.s.ctx, w.s.op, fmt.Errorf("decode event: %w", err))
	}
	return &m, nil
}

// Close ends the stream.
func (w *Watcher) Close() error { return w.s.body.Close() }
