package docker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/moby/moby/client"
)

// stdio is the standard input and output of a process in a container, as one
// connection. The engine sends output in frames, whose header says whether they are
// standard output or standard error.
type stdio struct {
	net.Conn
	r *bufio.Reader

	left int // unread bytes of the current frame

	mu   sync.Mutex
	said []byte // the beginning of the standard error; guarded by mu
}

func newStdio(h client.HijackedResponse) *stdio { return &stdio{Conn: h.Conn, r: h.Reader} }

// maxSaid bounds the part of a standard error that is kept.
const maxSaid = 4 << 10

// stderr returns the beginning of the process's standard error.
func (s *stdio) stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(s.said), "?"))
}

func (s *stdio) Read(p []byte) (int, error) {
	for s.left == 0 {
		var header [8]byte
		if _, err := io.ReadFull(s.r, header[:]); err != nil {
			return 0, err
		}
		size := int(binary.BigEndian.Uint32(header[4:]))
		switch header[0] {
		case 1:
			s.left = size
		case 2, 3: // 3 is an error of the engine itself
			if err := s.keep(size); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("the engine sends a stream of kind %d", header[0])
		}
	}
	n, err := s.r.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

// keep reads a frame of standard error and keeps its beginning.
func (s *stdio) keep(size int) error {
	for size > 0 {
		buf := make([]byte, min(size, 1<<10))
		n, err := s.r.Read(buf)
		size -= n
		s.mu.Lock()
		s.said = append(s.said, buf[:min(n, maxSaid-len(s.said))]...)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stdio) Close() error {
	if err := s.Conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
