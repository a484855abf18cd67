package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// startNetwork starts the process of the box's network, and returns the box's end
// of the link to it.
func (b *madeBox) startNetwork(m *maker, secrets []sandbox.Secret) (*os.File, error) {
	s := b.record.Spec
	p, link, err := network.Start("/proc/self/exe", s.ID, b.dir, network.Options{
		Network: s.Network, Terms: s.NetworkTerms, Secrets: secrets,
		Memory: allowance.NetworkMemory + s.Limits.MemoryBytes/4,
	})
	if err != nil {
		return nil, err
	}
	if err := m.hold(b, p.Pid); err != nil {
		link.Close()
		return nil, err
	}
	b.network = p.Pid
	m.keepFresh()
	return link, nil
}

// keepFresh sends the machine's settings for name resolution to the networks of
// this maker's boxes, from the first network on until the maker ends.
func (m *maker) keepFresh() {
	m.fresh.Do(func() {
		go network.KeepFresh(nil, func() (dirs []string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, b := range m.boxes {
				if b.ready && b.record.Linked {
					dirs = append(dirs, b.dir)
				}
			}
			return dirs
		})
	})
}

// link gives the box an interface at the end of link, besides its loopback
// interface. The sentry must wait for its start. link returns the settings for the
// start, with which gVisor sets up no network itself.
func (b *madeBox) link(link *os.File) (*config.Config, error) {
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
func (b *madeBox) traffic(ctx context.Context, after int64) (*sandbox.Traffic, error) {
	if !b.record.Linked {
		return nil, driver.NoNetwork()
	}
	t, _, err := network.Ask(ctx, b.dir, after)
	return &t, b.orGone(err)
}

// authority returns the certificate of the authority that signs for the box's
// secrets.
func (b *madeBox) authority(ctx context.Context) ([]byte, error) {
	if !b.record.Linked {
		return nil, nil
	}
	pem, err := network.Authority(ctx, b.dir)
	return pem, b.orGone(err)
}

// setNetwork puts another policy in force.
func (b *madeBox) setNetwork(ctx context.Context, n sandbox.Network) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.record.Linked {
		return driver.NoNetwork()
	}
	// The record is written first, so that a receipt never claims a policy that is
	// not in force.
	before := b.record
	b.record.Spec.Network = n
	err := b.save()
	if err == nil {
		if err = network.Change(ctx, b.dir, n); err == nil {
			return nil
		}
	}
	b.record = before
	return b.orGone(errors.Join(err, b.save()))
}

// networkControl reports what a box can reach; names are its interfaces.
func (r report) networkControl(names []string) sandbox.Control {
	c := sandbox.Control{
		Name:  sandbox.ControlNetwork,
		Asked: string(r.Record.Spec.Network),
		Value: "interfaces inside: " + strings.Join(names, " "),
	}
	apart := otherNamespace(r.Sentry, "net")
	if !r.Record.Linked {
		c.Mechanism = "gVisor's own network stack with no device, in an empty network namespace"
		c.Enforced = apart && (len(names) == 0 || slices.Equal(names, []string{"lo"}))
		return c
	}
	c.Mechanism = "a network stack of its own behind the only interface, which decides about every connection"
	if r.Network == "" {
		// The interface leads nowhere: the box reaches less than was requested.
		c.Value += "; nothing is reached, because the network's process has ended"
	} else {
		c.Value += "; policy in force: " + string(r.Network)
		if len(r.Walls) > 0 { // a network of an earlier version reports none
			c.Mechanism += ", in a process with " + strings.Join(r.Walls, ", ")
		}
	}
	c.Enforced = apart && (r.Network == "" || r.Network == r.Record.Spec.Network) &&
		!slices.ContainsFunc(names, func(n string) bool { return n != "lo" && n != message.LinkName })
	return c
}
