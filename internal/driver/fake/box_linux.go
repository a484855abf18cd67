package fake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// box is a box without the optional interfaces of wrap.
type box struct {
	d          *Driver
	id         string
	dir        string
	spec       driver.Spec
	supervisor process
}

// The box types, one for each combination of declared features.
type (
	pauser   struct{ b *box }
	reporter struct{ b *box }
	pausing  struct {
		*box
		pauser
	}
	reporting struct {
		*box
		reporter
	}
	complete struct {
		*box
		pauser
		reporter
	}
)

var (
	_ driver.Box      = (*box)(nil)
	_ driver.Pauser   = pauser{}
	_ driver.Reporter = reporter{}
)

// A metered box also has the usage that the options return.
type metered struct {
	driver.Box
	b *box
}

// Unwrap implements [driver.BoxWrapper].
func (m metered) Unwrap() driver.Box { return m.Box }

// Usage implements [driver.Meter].
func (m metered) Usage(context.Context) (driver.Usage, error) { return m.b.d.opts.Usage(m.b.id), nil }

// wrap gives b the optional interfaces that the options declare.
func (d *Driver) wrap(b *box) driver.Box {
	if d.opts.Usage != nil {
		return metered{d.wrapLife(b), b}
	}
	return d.wrapLife(b)
}

func (d *Driver) wrapLife(b *box) driver.Box {
	f := d.Info().Features
	switch {
	case f.Pause && f.Incidents:
		return complete{b, pauser{b}, reporter{b}}
	case f.Pause:
		return pausing{b, pauser{b}}
	case f.Incidents:
		return reporting{b, reporter{b}}
	}
	return b
}

// Ref implements [driver.Box].
func (b *box) Ref() string { return b.id }

// Dial implements [driver.Box].
func (b *box) Dial(ctx context.Context) (net.Conn, error) {
	if b.d.opts.OnDial != nil {
		if err := b.d.opts.OnDial(ctx, b.id); err != nil {
			return nil, sandbox.Wrap(err, "dial guest", b.id)
		}
	}
	for {
		conn, err := dialIn(ctx, b.dir, guestSocket)
		if errors.Is(err, unix.EAGAIN) && ctx.Err() == nil { // the socket's backlog is full
			time.Sleep(time.Millisecond)
			continue
		}
		return conn, sandbox.Wrap(err, "dial guest", b.id)
	}
}

// dialIn connects to a socket in dir. The path of dir may be longer than the
// maximum length of a socket address.
func dialIn(ctx context.Context, dir, name string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrGone, err)
	}
	defer f.Close()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), name))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %w", driver.ErrGone, err)
	}
	return conn, err
}

// Receipt implements [driver.Box].
func (b *box) Receipt(ctx context.Context) (sandbox.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return nil, sandbox.Wrap(err, "read receipt", b.id)
	}
	sup, err := findSupervisor(b.dir)
	if err != nil {
		return nil, sandbox.Wrap(err, "read receipt", b.id)
	}
	sup.close()
	return b.d.opts.receipt(b.id, &b.spec), nil
}

// Destroy implements [driver.Box].
func (b *box) Destroy(ctx context.Context) error {
	if b.d.opts.OnDestroy != nil {
		if err := b.d.opts.OnDestroy(ctx, b.id); err != nil {
			return sandbox.Wrap(err, "destroy box", b.id)
		}
	}
	if err := b.d.destroy(ctx, b.id); err != nil {
		return sandbox.Wrap(err, "destroy box", b.id)
	}
	// A concurrent Destroy may have removed the files before the supervisor has
	// exited.
	return sandbox.Wrap(b.supervisor.wait(ctx), "destroy box", b.id)
}

// Pause implements [driver.Pauser].
func (p pauser) Pause(context.Context) error {
	return sandbox.Wrap(control(p.b.dir, controlPause), "pause box", p.b.id)
}

// Resume implements [driver.Pauser].
func (p pauser) Resume(context.Context) error {
	return sandbox.Wrap(control(p.b.dir, controlResume), "resume box", p.b.id)
}

// Incidents implements [driver.Reporter].
func (r reporter) Incidents(context.Context) (driver.Incidents, error) {
	in := r.b.d.opts.Incidents(r.b.id)
	sup, err := findSupervisor(r.b.dir)
	if err == nil {
		sup.close()
	}
	in.Alive = err == nil
	return in, nil
}

// control sends a request to the supervisor of the box in dir and waits for the
// answer.
func control(dir string, what byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := dialIn(ctx, filepath.Clean(dir), controlSocket)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{what}); err != nil {
		return fmt.Errorf("ask supervisor: %w", err)
	}
	var reply [1]byte
	if _, err := conn.Read(reply[:]); err != nil {
		return fmt.Errorf("%w: the supervisor did not answer: %w", driver.ErrGone, err)
	}
	return nil
}
