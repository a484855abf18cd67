package stdio

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

type fakeStreams struct{ net.Conn }

func (fakeStreams) Stderr() string { return "" }

func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Errorf("read %q, %v; want %q", got, err, want)
	}
}

// TestPackets: packets come whole from one stream after another, until the box is gone.
func TestPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errGone := errors.New("the box is gone")
		ends := make(chan net.Conn, 9)
		tries := 0
		open := func(context.Context) (Streams, error) {
			switch tries++; tries {
			case 2:
				return nil, errors.New("the API server does not answer")
			case 4:
				return nil, errGone
			}
			here, there := net.Pipe()
			ends <- there
			return fakeStreams{here}, nil
		}
		first, _ := open(t.Context())
		p := NewPackets(first, open, func(err error) bool { return errors.Is(err, errGone) })
		defer p.Close()
		one := <-ends
		go func() {
			_, _ = one.Write([]byte("\x00\x00\x00\x02hi\x00\x05cut"))
			one.Close()
		}()
		expect(t, p, "\x00\x00\x00\x02hi")
		go func() {
			two := <-ends
			expect(t, two, "\x00\x00") // which makes the streams ready
			_, _ = two.Write([]byte("\x00\x00\x00\x03new"))
			two.Close()
		}()
		expect(t, p, "\x00\x00\x00\x03new")
		if n, err := p.Write([]byte("\x00\x04lost")); n != 6 || err != nil {
			t.Errorf("Write after the end of the streams: %d, %v", n, err)
		}
		if n, err := p.Read(make([]byte, 9)); n > 0 || !errors.Is(err, io.EOF) || tries != 4 {
			t.Errorf("Read when the box is gone: %d, %v, after %d tries", n, err, tries)
		}
	})
}

// TestPacketsClosed: streams that never were ready end at once, and Close ends the
// attempts to open others.
func TestPacketsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(ctx context.Context) (Streams, error) { return nil, errors.New("no answer") }
		here, there := net.Pipe()
		p := NewPackets(fakeStreams{here}, never, func(error) bool { return false })
		there.Close()
		if _, err := p.Read(make([]byte, 2)); err == nil {
			t.Error("Read of streams that ended at once succeeds")
		}
		if _, err := p.Write([]byte{0, 0}); err == nil {
			t.Error("Write to streams that ended at once succeeds")
		}
		p.Close()

		here, there = net.Pipe()
		p = NewPackets(fakeStreams{here}, never, func(error) bool { return false })
		go func() {
			_, _ = there.Write([]byte{0, 0})
			there.Close()
		}()
		expect(t, p, "\x00\x00")
		ended := make(chan error)
		go func() {
			_, err := p.Read(make([]byte, 2))
			ended <- err
		}()
		time.Sleep(time.Hour) // of the bubble's clock
		p.Close()
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("Read after Close: %v", err)
		}
		if _, err := p.Write([]byte{0, 0}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after Close: %v", err)
		}
	})
}
