// Package direct connects the driver to the guests of Pods at the addresses of the Pods,
// by TLS in which both ends know each other's certificate.
//
// Only package kubernetes imports it. A driver has one [Links]. For the first connection
// to a box, it orders the guest to listen, by an exec through the API server, and gets the
// guest's certificate in the answer. Only clients with the right to execute programs in
// Pods can therefore connect. Keys are in the memory of both processes alone, and each
// box has keys of its own.
// The driver of another process gives another order, which ends what the first one is
// worth; the next connection of the first driver then fails, and the one after it gives an
// order again.
package direct

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/container/stdio"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/pinned"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Port is the port of Pods at which guests listen.
const Port = 7353

const (
	// orderTime bounds an order and its answer, after the exec began.
	orderTime = 15 * time.Second
	// dialTime bounds the wait for a Pod's address, and readyTime that for its guest.
	dialTime  = 5 * time.Second
	readyTime = 10 * time.Second
)

var (
	// ErrRefused is wrapped by the errors of a guest that will not listen, whenever it is
	// asked.
	ErrRefused = sandbox.Errorf(sandbox.Unavailable, "the guest does not listen at the Pod's address")
	// ErrNotReached is wrapped by the errors of a Pod's address that does not answer, or
	// answers with another certificate. It is worth another try.
	ErrNotReached = sandbox.Errorf(sandbox.Unavailable, "the Pod's address is not reached")
)

// A Cluster has the Pods of boxes. Its methods are safe for concurrent use.
type Cluster interface {
	// Address returns the IP address of the Pod of a box.
	Address(ctx context.Context, ref string) (string, error)
	// Exec executes the guest's program with args in the Pod of a box.
	Exec(ctx context.Context, ref string, args []string) (stdio.Streams, error)
	// Ended waits until the Pod of a box has ended. It returns nil then, and an error if
	// ctx ends before.
	Ended(ctx context.Context, ref string) error
}

// Links are the ways to the boxes of one driver. Its methods are safe for concurrent use.
type Links struct {
	mu    sync.Mutex
	links map[string]*link // by the box; guarded by mu
}

// A link is the way to one box.
type link struct {
	turn chan struct{} // holds one token while the guest is ordered to listen

	mu      sync.Mutex
	current *trust // nil before an order; guarded by mu
}

// A trust is what an order led to.
type trust struct {
	address string
	config  *tls.Config
}

// New returns Links without boxes.
func New() *Links { return &Links{links: map[string]*link{}} }

// Forget forgets a box that is gone. Without Links, it does nothing.
func (l *Links) Forget(ref string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.links, ref)
}

func (l *Links) link(ref string) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links[ref] == nil {
		l.links[ref] = &link{turn: make(chan struct{}, 1)}
	}
	return l.links[ref]
}

// Dial connects to a box, whose certificate is for name, for a purpose such as
// [guestapi.DirectGuest]. Errors wrap [ErrRefused], [ErrNotReached], or are those of on.
func (l *Links) Dial(ctx context.Context, on Cluster, ref, name string, purpose byte) (stdio.Streams, error) {
	way := l.link(ref)
	t, err := way.trusted(ctx, on, ref, name)
	if err != nil {
		return nil, err
	}
	conn, err := t.dial(ctx, purpose)
	if err == nil {
		return follow(on, ref, conn, func() { way.forget(t) }), nil
	}
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	// Another server may have given an order. The error is not wrapped: its timeout is not
	// the caller's.
	way.forget(t)
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "kubernetes.transport: %w: %s does not answer this server: %v", ErrNotReached, t.address, err),
		"run the server where it reaches the addresses of Pods, and permit it TCP port %d of them by a NetworkPolicy: see docs/guides/kubernetes.md#transport; or set kubernetes.transport: exec", Port)
}

// trusted returns what the newest order led to. If there was none, it gives one.
func (l *link) trusted(ctx context.Context, on Cluster, ref, name string) (*trust, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.turn }()
	l.mu.Lock()
	t := l.current
	l.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t, err := order(ctx, on, ref, name)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.current = t
	l.mu.Unlock()
	return t, nil
}

// forget has the next connection give an order, unless another one has given it.
func (l *link) forget(t *trust) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == t {
		l.current = nil
	}
}

// order orders the guest of a box to listen for this process alone.
func order(ctx context.Context, on Cluster, ref, name string) (*trust, error) {
	ip, err := on.Address(ctx, ref)
	if err != nil {
		return nil, err
	}
	own, err := pinned.New("glovebox")
	if err != nil {
		return nil, err
	}
	t := &trust{address: net.JoinHostPort(ip, fmt.Sprint(Port))}
	text, err := json.Marshal(&guestapi.DirectOrder{Address: t.address, Name: name, Client: own.Certificate[0]})
	if err != nil {
		return nil, err
	}
	answer, err := ask(ctx, on, ref, append(text, '\n'))
	if err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "kubernetes.transport: %w: %q", ErrRefused, answer.Error),
			"see whether a program of the Pod has taken port %d, or set kubernetes.transport: exec", Port)
	}
	if t.config, err = pinned.Client(own, answer.Certificate, name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return t, nil
}

// ask passes an order to the guest, and returns its answer.
func ask(ctx context.Context, on Cluster, ref string, order []byte) (*guestapi.DirectAnswer, error) {
	s, err := on.Exec(ctx, ref, []string{"direct"})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	_ = s.SetDeadline(time.Now().Add(orderTime))
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	var line []byte
	if _, err = s.Write(order); err == nil {
		line, err = bufio.NewReader(io.LimitReader(s, guestapi.MaxDirect)).ReadBytes('\n')
	}
	var answer guestapi.DirectAnswer
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	switch {
	case err == nil:
		return &answer, nil
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), err)
	case s.Stderr() == "": // the exec was cut
		return nil, sandbox.Errorf(sandbox.Unavailable, "%w: the guest does not answer an order: %v", ErrNotReached, err)
	}
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "kubernetes.transport: %w: %q", ErrRefused, s.Stderr()),
		"see that kubernetes.guest_image is the image of this version; a sandbox with an older guest needs kubernetes.transport: exec")
}

// plain connects to an address. A Pod whose node is lost is noticed in a minute.
func plain(ctx context.Context, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTime, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}}
	return dialer.DialContext(ctx, "tcp", address)
}

// Try connects to an address as Dial does, and ends the connection.
func Try(ctx context.Context, address string) error {
	conn, err := plain(ctx, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// dial connects for a purpose, and returns when the guest has accepted that.
func (t *trust) dial(ctx context.Context, purpose byte) (*tls.Conn, error) {
	under, err := plain(ctx, t.address)
	if err != nil {
		return nil, err
	}
	_ = under.SetDeadline(time.Now().Add(readyTime))
	stop := context.AfterFunc(ctx, func() { _ = under.SetDeadline(time.Unix(1, 0)) })
	conn := tls.Client(under, t.config)
	_, err = conn.Write([]byte{purpose}) // after the handshake
	var answer [1]byte
	if err == nil {
		_, err = io.ReadFull(conn, answer[:])
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && answer[0] != guestapi.DirectReady {
		err = fmt.Errorf("the guest answers with the byte %d", answer[0])
	}
	if err == nil {
		err = under.SetDeadline(time.Time{})
	}
	if err != nil {
		under.Close()
		return nil, err
	}
	return conn, nil
}

// A stream is a connection to a Pod. It ends with the Pod, which the network alone does not
// report: the address of an ended Pod answers no packet.
type stream struct {
	*tls.Conn
	unfollow context.CancelFunc
}

// follow returns the stream of a connection. It calls ended at the end of the Pod, before
// the stream ends.
func follow(on Cluster, ref string, conn *tls.Conn, ended func()) stream {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		if on.Ended(ctx, ref) == nil {
			ended()
			_ = conn.NetConn().Close() // its readers and writers get an error
		}
	}()
	return stream{conn, cancel}
}

// Stderr implements [stdio.Streams]: the guest says nothing besides.
func (stream) Stderr() string { return "" }

// Close ends the stream. It is idempotent.
func (s stream) Close() error {
	s.unfollow()
	_ = s.Conn.Close() // also when the other end has closed it
	return nil
}
