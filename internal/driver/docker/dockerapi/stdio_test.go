package dockerapi

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/container/stdio"
)

// frames encodes output as an engine does.
func frames(pairs ...string) []byte {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		var h [8]byte
		h[0] = pairs[i][0] - '0'
		binary.BigEndian.PutUint32(h[4:], uint32(len(pairs[i+1])))
		b = append(append(b, h[:]...), pairs[i+1]...)
	}
	return b
}

func TestStdio(t *testing.T) {
	s := stdio.New(nil, bufio.NewReader(bytes.NewReader(frames("1", "one ", "2", "oh", "1", "", "1", "two", "3", " dear"))), readFrame)
	got, err := io.ReadAll(s)
	if err != nil || string(got) != "one two" || s.Stderr() != "oh dear" {
		t.Errorf("got %q, %q, %v", got, s.Stderr(), err)
	}
	s = stdio.New(nil, bufio.NewReader(bytes.NewReader(frames("2", strings.Repeat("x", 100_000), "1", "end"))), readFrame)
	if got, err := io.ReadAll(s); err != nil || string(got) != "end" || len(s.Stderr()) != stdio.MaxStderr {
		t.Errorf("a long standard error: %d bytes kept, then %q, %v", len(s.Stderr()), got, err)
	}
	s = stdio.New(nil, bufio.NewReader(bytes.NewReader(frames("9", "x"))), readFrame)
	if _, err := io.ReadAll(s); err == nil {
		t.Error("a stream of an unknown kind is read")
	}
}

func FuzzStdio(f *testing.F) {
	f.Add(frames("1", "out", "2", "err"))
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := stdio.New(nil, bufio.NewReader(bytes.NewReader(data)), readFrame)
		n, _ := io.Copy(io.Discard, s)
		if n > int64(len(data)) || len(s.Stderr()) > 3*stdio.MaxStderr {
			t.Errorf("%d bytes became %d and %d", len(data), n, len(s.Stderr()))
		}
	})
}
