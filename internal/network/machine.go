package network

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A machine is what its interfaces say of addresses.
type machine struct {
	known bool           // else every address counts as its own
	own   []netip.Addr   // its addresses
	near  []netip.Prefix // the networks that it is in
}

// Bounds on the networks that count as near. An interface that claims more than
// these bits give does not make the rest of the world private.
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

// public reports whether a is of the public internet, and neither the machine's
// own nor a neighbour's.
func (m *machine) public(a netip.Addr) bool {
	return sandbox.Public(a) && !m.owns(a) && !slices.ContainsFunc(m.near, func(p netip.Prefix) bool { return p.Contains(a) })
}

// add adds an address of an interface, whose network has that many bits. With
// all of them it is the address alone: of a network that its router manages, or
// of a line with two ends. A network that is too wide counts as the part around
// the address.
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

// thisMachine returns what the interfaces say now.
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

// watchMachine returns a function that tells of this machine, which is looked at
// again from time to time. What cannot be read stays as it was.
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

// machineFor is how long the machine's interfaces are taken for the same.
const machineFor = 10 * time.Second
