package network

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A machine holds the addresses and networks of this machine's interfaces.
type machine struct {
	known bool           // if false, every address counts as its own
	own   []netip.Addr   // its addresses
	near  []netip.Prefix // the networks that it is in
}

// Bounds on the networks that count as near. Without them, an interface with a
// very wide network would make public addresses private.
const (
	minNear4 = 8
	minNear6 = 16
)

func minNear(a netip.Addr) int {
	if a.Is4() {
		return minNear4
	}
	return minNear6
}

// owns reports whether a is an address of the machine.
func (m *machine) owns(a netip.Addr) bool {
	return !m.known || a.IsLoopback() || slices.Contains(m.own, a)
}

// public reports whether a is a public address, and neither the machine's own nor
// in one of its networks.
func (m *machine) public(a netip.Addr) bool {
	return sandbox.Public(a) && !m.owns(a) && !slices.ContainsFunc(m.near, func(p netip.Prefix) bool { return p.Contains(a) })
}

// add adds an address of an interface, whose network prefix has that many bits. A
// full-length prefix adds only the address. Routers that manage the network, and
// point-to-point links, give such prefixes. If a network is too wide, only the
// part around the address counts.
func (m *machine) add(a netip.Addr, bits int) {
	m.own = append(m.own, a)
	if bits == a.BitLen() {
		return
	}
	m.addNear(netip.PrefixFrom(a, max(bits, minNear(a))))
}

func (m *machine) addNear(p netip.Prefix) {
	if p = p.Masked(); !slices.Contains(m.near, p) {
		m.near = append(m.near, p)
	}
}

// thisMachine returns the current state of the interfaces.
func thisMachine() (*machine, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	m := &machine{known: true}
	for _, addr := range addrs {
		n, ok := addr.(*net.IPNet)
		if !ok {
			continue
		}
		a, ok := netip.AddrFromSlice(n.IP)
		if !ok {
			continue
		}
		a = a.Unmap()
		ones, bits := n.Mask.Size()
		m.add(a, ones-bits+a.BitLen())
	}
	near, err := onLink()
	if err != nil {
		return nil, err
	}
	for _, p := range near {
		m.addNear(p)
	}
	return m, nil
}

// watchMachine returns a function that returns this machine. The function reads
// the interfaces again after machineFor. If it cannot read them, it keeps the
// last state.
func watchMachine() func() *machine {
	var (
		mu   sync.Mutex
		at   time.Time
		last = &machine{}
	)
	return func() *machine {
		mu.Lock()
		defer mu.Unlock()
		if last.known && time.Since(at) < machineFor {
			return last
		}
		if m, err := thisMachine(); err == nil {
			last, at = m, time.Now()
		}
		return last
	}
}

// machineFor is how long the state of the interfaces is cached.
const machineFor = 10 * time.Second
