package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podstream "k8s.io/client-go/transport/websocket"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/container/stdio"
)

// The subprotocol of streams to a process, and its channels. The first byte of each
// message is its channel.
const (
	protocol      = "v5.channel.k8s.io"
	channelStdin  = 0
	channelStdout = 1
	channelStderr = 2
	channelStatus = 3
)

// pieceSize is the most data in one message, as Kubernetes' own client has it.
const pieceSize = 32 << 10

// A stream is the standard input and output of a process in a Pod, as one
// connection. One goroutine reads at a time; Write and Close are safe for concurrent
// use. After a missed deadline, the stream is of no more use.
type stream struct {
	conn  *websocket.Conn
	input io.Reader // the rest of a message of standard output

	writing sync.Mutex
	piece   []byte // a message; guarded by writing

	mu   sync.Mutex
	said []byte // the beginning of the standard error, and the status; guarded by mu
}

// exec executes a program in the container of a Pod.
func (a *api) exec(ctx context.Context, pod string, argv []string) (*stream, error) {
	request := a.pods(http.MethodGet).Name(pod).SubResource("exec").
		Param("container", boxContainer).Param("stdin", "true").Param("stdout", "true").Param("stderr", "true")
	for _, arg := range argv {
		request = request.Param("command", arg)
	}
	return a.stream(ctx, request.URL().String())
}

// attach opens the standard input of the first process of a Pod.
func (a *api) attach(ctx context.Context, pod string) (*stream, error) {
	return a.stream(ctx, a.pods(http.MethodGet).Name(pod).SubResource("attach").
		Param("container", boxContainer).Param("stdin", "true").URL().String())
}

// stream opens a stream at a URL. The end of ctx does not end it.
func (a *api) stream(ctx context.Context, url string) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	transport, holder, err := podstream.RoundTripperFor(a.config)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	conn, err := podstream.Negotiate(transport, holder, request, protocol)
	if err != nil {
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		return nil, err
	}
	return &stream{conn: conn}, nil
}

var _ container.Streams = (*stream)(nil)

// Stderr implements [container.Streams].
func (s *stream) Stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(s.said), "?"))
}

// Read reads standard output.
func (s *stream) Read(p []byte) (int, error) {
	for {
		if s.input != nil {
			n, err := s.input.Read(p)
			if errors.Is(err, io.EOF) {
				s.input, err = nil, nil
			}
			if n > 0 || err != nil {
				return n, err
			}
			continue
		}
		_, message, err := s.conn.NextReader()
		if err != nil {
			return 0, io.EOF // whichever way the other end went
		}
		var channel [1]byte
		if _, err := io.ReadFull(message, channel[:]); errors.Is(err, io.EOF) {
			continue
		} else if err != nil {
			return 0, err
		}
		switch channel[0] {
		case channelStdout:
			s.input = message
		case channelStderr:
			s.keep(message)
		case channelStatus:
			s.keepStatus(message)
			return 0, io.EOF
		}
	}
}

// keep keeps the beginning of what the process says.
func (s *stream) keep(r io.Reader) {
	text, _ := io.ReadAll(io.LimitReader(r, stdio.MaxStderr))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, text[:min(len(text), stdio.MaxStderr-len(s.said))]...)
}

// keepStatus keeps why the process did not run or how it ended.
func (s *stream) keepStatus(r io.Reader) {
	var status metav1.Status
	if json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&status) == nil && status.Status != metav1.StatusSuccess {
		s.keep(strings.NewReader(" " + status.Message))
	}
}

// Write writes to standard input.
func (s *stream) Write(p []byte) (written int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for len(p) > 0 {
		n := min(len(p), pieceSize)
		s.piece = append(append(s.piece[:0], channelStdin), p[:n]...)
		if err := s.conn.WriteMessage(websocket.BinaryMessage, s.piece); err != nil {
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

// Close ends the stream. It is idempotent.
func (s *stream) Close() error {
	_ = s.conn.Close() // also when the other end has closed it
	return nil
}

func (s *stream) SetDeadline(t time.Time) error {
	return errors.Join(s.conn.SetReadDeadline(t), s.conn.SetWriteDeadline(t))
}
func (s *stream) SetReadDeadline(t time.Time) error  { return s.conn.SetReadDeadline(t) }
func (s *stream) SetWriteDeadline(t time.Time) error { return s.conn.SetWriteDeadline(t) }

func (s *stream) LocalAddr() net.Addr  { return s.conn.LocalAddr() }
func (s *stream) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }
