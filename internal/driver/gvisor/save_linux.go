package gvisor

import (
	"context"
	"net"
	"os"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// A stream is a connection to the guest that its box knows. Before a box is saved,
// all of them must have ended.
type stream struct {
	*net.UnixConn
	box *box
}

// open makes a socket to the guest a stream of b, and closes the file.
func (b *box) open(near *os.File) (net.Conn, error) {
	conn, err := message.FileConn(near)
	if err != nil {
		return nil, err
	}
	s := &stream{conn.(*net.UnixConn), b}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams[s] = true
	return s, nil
}

// Close implements [net.Conn].
func (s *stream) Close() error {
	s.box.mu.Lock()
	delete(s.box.streams, s)
	s.box.mu.Unlock()
	return s.UnixConn.Close()
}

// closeStreams closes all connections to the guest.
func (b *box) closeStreams() {
	b.mu.Lock()
	var open []*stream
	for s := range b.streams {
		open = append(open, s)
	}
	b.spare, b.own = nil, nil
	b.mu.Unlock()
	for _, s := range open {
		s.Close()
	}
}

// Save implements [driver.Saver].
func (b *box) Save(ctx context.Context) (driver.Saved, error) {
	if err := b.asleep.take(ctx); err != nil {
		return driver.Saved{}, sandbox.Wrap(err, "save box", b.ref)
	}
	defer b.asleep.end()
	b.closeStreams()
	rep, err := b.client.call(ctx, &message.Request{Op: message.OpSave, Ref: b.ref})
	if err != nil {
		return driver.Saved{}, sandbox.Wrap(err, "save box", b.ref)
	}
	return *rep.Saved, nil
}

// restore resumes a saved box, or gives it the state of a snapshot if that is not "".
// spec is its order.
func (b *box) restore(ctx context.Context, spec *driver.Spec, snapshot string) error {
	root, done, err := imageRoot(ctx, b.images, spec.Image)
	if err != nil {
		return err
	}
	defer done()
	rep, err := b.client.create(ctx, &message.Request{Op: message.OpRestore, Ref: b.ref, Snapshot: snapshot, Root: root, Trace: trace.On(ctx)}, spec, nil)
	if err != nil {
		return err
	}
	trace.Adopt(ctx, rep.Spans)
	return nil
}
