package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/bundle"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/checkpoint"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// link gives the box an interface at the end of link, besides its loopback
// interface. The sentry must wait for its start. link returns the settings for the
// start, with which gVisor sets up no network itself.
func (b *box) link(conf *config.Config, link *os.File) (*config.Config, error) {
	conn, err := b.control()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.Call(boot.NetworkCreateLinksAndRoutes, bundle.Link(link), nil); err != nil {
		return nil, fmt.Errorf("make the box's interface: %w", err)
	}
	linked := *conf
	linked.Network = config.NetworkHost // with this value, gVisor makes no interfaces
	return &linked, nil
}

// control connects to the control socket of the box's sentry. The caller closes the
// connection.
func (b *box) control() (*urpc.Client, error) {
	path := b.kernel.Load().ControlSocketPath
	if filepath.IsAbs(path) {
		// A socket's address is limited to 108 bytes; a path may be longer.
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("reach the box's kernel: %w", err)
		}
		defer unix.Close(fd)
		path = fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	conn, err := client.ConnectTo(path)
	if err != nil {
		return nil, fmt.Errorf("reach the box's kernel: %w", err)
	}
	return conn, nil
}

// traffic asks the box's network what it counted.
func (b *box) traffic(ctx context.Context, after int64) (*sandbox.Traffic, error) {
	if !b.record.Linked {
		return nil, driver.NoNetwork()
	}
	earlier, err := checkpoint.ReadTraffic(b.dir)
	if err != nil {
		return nil, err
	}
	if b.saved() {
		return earlier.Plus(sandbox.Traffic{}, after), nil
	}
	t, _, err := network.Ask(ctx, b.dir, max(0, after-earlier.Last()))
	return earlier.Plus(t, after), b.orGone(err)
}

// authority returns the certificate of the authority that signs for the box's
// secrets.
func (b *box) authority(ctx context.Context) ([]byte, error) {
	if !b.record.Linked {
		return nil, nil
	}
	pem, err := network.Authority(ctx, b.dir)
	return pem, b.orGone(err)
}

// setNetwork puts another policy in force, and other header rules if the request has
// them.
func (b *box) setNetwork(ctx context.Context, req *message.Request) error {
	rules := req.Rules
	if req.Ruled && rules == nil {
		rules = []sandbox.Secret{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.record.Linked {
		return driver.NoNetwork()
	}
	// The record is written first, so that a receipt never claims a policy that is
	// not in force.
	before := b.record
	b.record.Spec.Network = req.Network
	err := b.save()
	if err == nil && b.saved() {
		return nil // Restore puts it in force
	}
	if err == nil {
		if err = network.Change(ctx, b.dir, req.Network, rules); err == nil {
			return nil
		}
	}
	b.record = before
	return b.orGone(errors.Join(err, b.save()))
}
