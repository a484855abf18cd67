package stdio

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// Streams are the standard streams of a process in a container.
type Streams interface {
	net.Conn
	// Stderr returns the beginning of the standard error of the process.
	Stderr() string
}

const (
	// firstRest and longestRest are between attempts to connect again.
	firstRest   = 500 * time.Millisecond
	longestRest = time.Minute
	// shortLife is how long a connection must last for a short rest. A program of the
	// box can end the connection of its own packets, again and again.
	shortLife = time.Minute
	// aliveEvery is how often an empty packet is sent. Platforms end silent streams.
	aliveEvery = 5 * time.Minute
	// packetBuffer is the size of the buffer for reading.
	packetBuffer = 32 << 10
)

// Packets are the packets of a box on streams, each after two bytes with its length.
// When the streams end, Read opens others: a cluster's API server restarts, and the
// connections of the box outlast that. Packets that are written meanwhile are lost.
// One goroutine reads at a time; Write and Close are safe for concurrent use.
type Packets struct {
	open   func(context.Context) (Streams, error)
	final  func(error) bool
	closed chan struct{}
	once   sync.Once

	// The reader's own.
	input *bufio.Reader
	left  []byte // the rest of a length and a packet
	buf   []byte
	began time.Time
	rest  time.Duration

	mu      sync.Mutex
	current Streams // guarded by mu
	ready   bool    // the first packet was read; guarded by mu
}

// NewPackets returns the packets on streams on which no data was sent yet. The streams
// are the caller's to make ready: it writes an empty packet and reads one. Later ones
// are opened with open, until it returns an error that is final. The caller closes the
// Packets.
func NewPackets(first Streams, open func(context.Context) (Streams, error), final func(error) bool) *Packets {
	p := &Packets{open: open, final: final, closed: make(chan struct{})}
	p.use(first)
	go p.keepAlive()
	return p
}

func (p *Packets) use(s Streams) {
	p.input, p.began = bufio.NewReaderSize(s, packetBuffer), time.Now()
	p.mu.Lock()
	p.current = s
	p.mu.Unlock()
}

func (p *Packets) streams() (s Streams, ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current, p.ready
}

// Read reads lengths and packets, whole ones from each of the streams.
func (p *Packets) Read(b []byte) (int, error) {
	for len(p.left) == 0 {
		err := p.next()
		s, ready := p.streams()
		switch {
		case err == nil:
			p.mu.Lock()
			p.ready = true
			p.mu.Unlock()
		case !ready:
			return 0, err
		default:
			s.Close()
			if !p.again() {
				return 0, io.EOF
			}
		}
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

// next reads a length and a packet.
func (p *Packets) next() error {
	var size [2]byte
	if _, err := io.ReadFull(p.input, size[:]); err != nil {
		return err
	}
	p.buf = append(p.buf[:0], size[:]...)
	p.buf = append(p.buf, make([]byte, binary.BigEndian.Uint16(size[:]))...)
	if _, err := io.ReadFull(p.input, p.buf[2:]); err != nil {
		return err
	}
	p.left = p.buf
	return nil
}

// again opens other streams. It returns false if there will be none, or if p was
// closed.
func (p *Packets) again() bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-p.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	if time.Since(p.began) > shortLife {
		p.rest = 0
	}
	for {
		p.rest = min(max(2*p.rest, firstRest), longestRest)
		select {
		case <-time.After(p.rest):
		case <-ctx.Done():
			return false
		}
		s, err := p.open(ctx)
		if err != nil {
			if p.final(err) {
				return false
			}
			continue // or p was closed
		}
		if ctx.Err() != nil {
			s.Close()
			return false
		}
		if _, err := s.Write([]byte{0, 0}); err != nil {
			s.Close()
			continue
		}
		p.use(s)
		select {
		case <-p.closed: // perhaps before it could close these
			s.Close()
			return false
		default:
			return true
		}
	}
}

func (p *Packets) keepAlive() {
	every := time.NewTicker(aliveEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			_, _ = p.Write([]byte{0, 0})
		case <-p.closed:
			return
		}
	}
}

// Write writes one packet with its length. The packet is lost if the streams have
// ended.
func (p *Packets) Write(b []byte) (int, error) {
	select {
	case <-p.closed:
		return 0, net.ErrClosed
	default:
	}
	s, ready := p.streams()
	if _, err := s.Write(b); err != nil && !ready {
		return 0, err
	}
	return len(b), nil // Read notices streams that have ended
}

// Close ends the streams, for good. It is idempotent.
func (p *Packets) Close() error {
	p.once.Do(func() { close(p.closed) })
	s, _ := p.streams()
	return s.Close()
}

// Stderr returns the beginning of the standard error of the newest streams.
func (p *Packets) Stderr() string {
	s, _ := p.streams()
	return s.Stderr()
}

// SetDeadline sets the deadline of the newest streams only, like the other two.
func (p *Packets) SetDeadline(t time.Time) error {
	s, _ := p.streams()
	return s.SetDeadline(t)
}

// SetReadDeadline is for the time until the streams are ready.
func (p *Packets) SetReadDeadline(t time.Time) error {
	s, _ := p.streams()
	return s.SetReadDeadline(t)
}

// SetWriteDeadline is for the time until the streams are ready.
func (p *Packets) SetWriteDeadline(t time.Time) error {
	s, _ := p.streams()
	return s.SetWriteDeadline(t)
}

// LocalAddr returns the address of the newest streams.
func (p *Packets) LocalAddr() net.Addr {
	s, _ := p.streams()
	return s.LocalAddr()
}

// RemoteAddr returns the address of the newest streams.
func (p *Packets) RemoteAddr() net.Addr {
	s, _ := p.streams()
	return s.RemoteAddr()
}
