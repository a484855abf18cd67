package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// link gives the box an interface at the end of link, besides its loopback
// interface. The sentry must wait for its start. link returns the settings for the
// start, with which gVisor sets up no network itself.
func (b *box) link(link *os.File) (*config.Config, error) {
	path := b.kernel.ControlSocketPath
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
	defer conn.Close()
	if err := conn.Call(boot.NetworkCreateLinksAndRoutes, linkArgs(link), nil); err != nil {
		return nil, fmt.Errorf("make the box's interface: %w", err)
	}
	conf := *b.conf
	conf.Network = config.NetworkHost // with this value, gVisor makes no interfaces
	return &conf, nil
}

func linkArgs(link *os.File) *boot.CreateLinksAndRoutesArgs {
	prefixed := func(p netip.Prefix) boot.IPWithPrefix {
		return boot.IPWithPrefix{Address: p.Addr().AsSlice(), PrefixLen: p.Bits()}
	}
	onLink := func(p netip.Prefix) boot.Route {
		p = p.Masked()
		return boot.Route{Destination: net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	}
	elsewhere := func(gateway netip.Addr) boot.DefaultRoute {
		bits := gateway.BitLen()
		return boot.DefaultRoute{Name: message.LinkName, Route: boot.Route{
			Destination: net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)},
			Gateway:     gateway.AsSlice(),
		}}
	}
	neighbour := func(gateway netip.Addr) boot.Neighbor {
		return boot.Neighbor{IP: gateway.AsSlice(), HardwareAddr: network.GatewayMAC}
	}
	gateway4, gateway6 := network.Gateway4.Addr(), network.Gateway6.Addr()
	return &boot.CreateLinksAndRoutesArgs{
		FilePayload:   urpc.FilePayload{Files: []*os.File{link}},
		LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink},
		FDBasedLinks: []boot.FDBasedLink{{
			Name:              message.LinkName,
			MTU:               network.MTU,
			Addresses:         []boot.IPWithPrefix{prefixed(network.Guest4), prefixed(network.Guest6)},
			Routes:            []boot.Route{onLink(network.Guest4), onLink(network.Guest6)},
			TXChecksumOffload: true,
			RXChecksumOffload: true,
			LinkAddress:       network.GuestMAC,
			Neighbors:         []boot.Neighbor{neighbour(gateway4), neighbour(gateway6)},
			NumChannels:       1,
		}},
		Defaultv4Gateway: elsewhere(gateway4),
		Defaultv6Gateway: elsewhere(gateway6),
	}
}

// resolvers returns the DNS servers of a box with a network.
func resolvers() string {
	return network.Gateway4.Addr().String() + "," + network.Gateway6.Addr().String()
}

// traffic asks the box's network what it counted.
func (b *box) traffic(ctx context.Context, after int64) (*sandbox.Traffic, error) {
	if !b.record.Linked {
		return nil, driver.NoNetwork()
	}
	t, _, err := network.Ask(ctx, b.dir, after)
	return &t, b.orGone(err)
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
	if err == nil {
		if err = network.Change(ctx, b.dir, req.Network, rules); err == nil {
			return nil
		}
	}
	b.record = before
	return b.orGone(errors.Join(err, b.save()))
}
