package image

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// freeSize is the size up to which a layer's compression ratio is not checked, in
// bytes.
const freeSize = 256 << 20

// maxWindow bounds the memory for reading zstd, in bytes. The zstd tool uses
// windows of 8 MiB at its highest ordinary level, and image builders use at most
// 32 MiB.
const maxWindow = 32 << 20

// decompress returns the data of r, decompressed if they are gzip or zstd. The
// caller closes the reader. Reading fails with an error of kind Exhausted if the
// output is more than ratio times as large as the input.
func decompress(r io.Reader, ratio int64) (io.ReadCloser, error) {
	in := &counter{r: r}
	buf := bufio.NewReaderSize(in, 256<<10)
	magic, err := buf.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buf)
		if err != nil {
			return nil, badCompression(err)
		}
		return &expander{Reader: z, close: func() { z.Close() }, in: in, free: freeSize, ratio: ratio}, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buf, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, badCompression(err)
		}
		return &expander{Reader: z, close: z.Close, in: in, free: freeSize, ratio: ratio}, nil
	}
	return io.NopCloser(buf), nil
}

func badCompression(err error) error {
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the compressed data need a window of more than %s", sandbox.FormatBytes(maxWindow)),
			"compress the layers of the image with a smaller window, at most zstd --long=25")
	}
	if err == io.ErrUnexpectedEOF {
		return sandbox.Errorf(sandbox.Invalid, "the compressed data end too early")
	}
	return sandbox.Errorf(sandbox.Invalid, "the compressed data are broken: %w", err)
}

type counter struct {
	r   io.Reader
	n   int64
	err error // of r, except io.EOF
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// An expander reads compressed data and checks the ratio.
type expander struct {
	io.Reader
	close func()
	in    *counter
	out   int64
	free  int64 // output bytes before the ratio is checked
	ratio int64
}

func (e *expander) Read(b []byte) (int, error) {
	n, err := e.Reader.Read(b)
	e.out += int64(n)
	if e.out > e.free && e.out/e.ratio > e.in.n {
		return 0, sandbox.Errorf(sandbox.Exhausted, "the data grow more than %d times when they are decompressed", e.ratio)
	}
	if err != nil && err != io.EOF {
		if e.in.err != nil {
			return n, e.in.err
		}
		err = badCompression(err)
	}
	return n, err
}

func (e *expander) Close() error {
	e.close()
	return nil
}

// The size of the read-ahead: the number of pieces, and the bytes of each.
const (
	aheadPieces = 4
	aheadSize   = 256 << 10
)

// ahead reads in the background, so that decompressing and writing use different
// CPUs.
type ahead struct {
	full, empty chan []byte
	stop        chan struct{}
	ended       sync.WaitGroup
	err         error // of the reader; set before full is closed
	now         []byte
	at          int
}

func readAhead(r io.Reader) *ahead {
	a := &ahead{full: make(chan []byte, aheadPieces), empty: make(chan []byte, aheadPieces), stop: make(chan struct{})}
	for range aheadPieces {
		a.empty <- make([]byte, aheadSize)
	}
	a.ended.Go(func() {
		defer close(a.full)
		for {
			var b []byte
			select {
			case b = <-a.empty:
			case <-a.stop:
				return
			}
			n, err := io.ReadFull(r, b[:cap(b)])
			if n > 0 {
				a.full <- b[:n] // never blocks, because full has room for all pieces
			}
			if err != nil {
				if err == io.ErrUnexpectedEOF {
					err = io.EOF
				}
				a.err = err
				return
			}
		}
	})
	return a
}

func (a *ahead) Read(b []byte) (int, error) {
	for a.at == len(a.now) {
		if a.now != nil {
			a.empty <- a.now
			a.now = nil
		}
		next, ok := <-a.full
		if !ok {
			a.at = 0
			if a.err == nil {
				return 0, io.ErrClosedPipe
			}
			return 0, a.err
		}
		a.now, a.at = next, 0
	}
	n := copy(b, a.now[a.at:])
	a.at += n
	return n, nil
}

// Close stops the background reader and waits for its end.
func (a *ahead) Close() {
	close(a.stop)
	a.ended.Wait()
}
