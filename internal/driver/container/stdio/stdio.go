// Package stdio makes one connection of the standard streams of a process in a
// container, and carries the packets of a box on such streams.
//
// Only package container and the drivers of containers import it. The caller that
// made a [Conn] or [Packets] closes it.
package stdio

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
)

// A Framing reads the header of the next frame of a process's output. It returns
// the size of the frame, and whether its content is standard error.
type Framing func(r io.Reader) (stderr bool, size int, err error)

// A Conn is the standard input and output of a process in a container, as one
// connection. The platform sends output in frames, whose header says whether they
// are standard output or standard error.
type Conn struct {
	net.Conn
	r       io.Reader
	framing Framing

	left int // unread bytes of the current frame

	mu   sync.Mutex
	said []byte // the beginning of the standard error; guarded by mu
}

// New returns the streams over conn, whose frames are read from r.
func New(conn net.Conn, r io.Reader, framing Framing) *Conn {
	return &Conn{Conn: conn, r: r, framing: framing}
}

// MaxStderr bounds the part of a standard error that is kept, in bytes.
const MaxStderr = 4 << 10

// Stderr returns the beginning of the process's standard error.
func (s *Conn) Stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(s.said), "?"))
}

// Read reads standard output.
func (s *Conn) Read(p []byte) (int, error) {
	for s.left == 0 {
		stderr, size, err := s.framing(s.r)
		if err != nil {
			return 0, err
		}
		if !stderr {
			s.left = size
		} else if err := s.keep(size); err != nil {
			return 0, err
		}
	}
	n, err := s.r.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

// keep reads a frame of standard error and keeps its beginning.
func (s *Conn) keep(size int) error {
	for size > 0 {
		buf := make([]byte, min(size, 1<<10))
		n, err := s.r.Read(buf)
		size -= n
		s.mu.Lock()
		s.said = append(s.said, buf[:min(n, MaxStderr-len(s.said))]...)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes the connection. It is idempotent.
func (s *Conn) Close() error {
	if err := s.Conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
