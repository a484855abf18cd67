package guest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// tunnelName is the name of the tunnel's interface.
const tunnelName = "eth0"

// maxPacket is the largest packet, in bytes. Its length has two bytes.
const maxPacket = 1<<16 - 1

// tunnelMain makes an interface in its network namespace, which is a sandbox's.
// It carries packets between the interface and its standard input and output.
// Two bytes before each packet give its length. The other end speaks first, with
// an empty packet; tunnelMain replies with one when the interface is ready. It
// ends at the end of its standard input, and the interface with it.
func tunnelMain(args []string) error {
	fs := flag.NewFlagSet("tunnel", flag.ContinueOnError)
	var link tunnelLink
	link.flags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	packets, err := takeStdio()
	if err != nil {
		return err
	}
	defer packets.Close()
	tun, err := link.open()
	if err == nil {
		defer tun.Close()
	}
	// Wait before reporting an error: without a client the error would be lost.
	if spokenErr := packets.spokenTo(unspokenTime); err == nil {
		err = spokenErr
	}
	if err == nil {
		_, err = packets.Write([]byte{0, 0})
	}
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- carryOut(packets, tun) }()
	go func() { ended <- carryIn(tun, packets) }()
	if err := <-ended; err != io.EOF {
		return err
	}
	return nil
}

// carryOut copies packets from the interface to the stream.
func carryOut(to io.Writer, tun io.Reader) error {
	buf := make([]byte, 2+maxPacket)
	for {
		n, err := tun.Read(buf[2:])
		if err != nil {
			return fmt.Errorf("read from the interface: %w", err)
		}
		binary.BigEndian.PutUint16(buf, uint16(n))
		if _, err := to.Write(buf[:2+n]); err != nil {
			return err
		}
	}
}

// carryIn copies packets from the stream to the interface.
func carryIn(tun io.Writer, from io.Reader) error {
	r := bufio.NewReaderSize(from, 2*maxPacket)
	buf := make([]byte, maxPacket)
	for {
		if _, err := io.ReadFull(r, buf[:2]); err != nil {
			return io.EOF
		}
		packet := buf[:binary.BigEndian.Uint16(buf)]
		if _, err := io.ReadFull(r, packet); err != nil {
			return io.EOF
		}
		// EINVAL: the OS kernel drops data that is not a packet.
		if _, err := tun.Write(packet); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("write to the interface: %w", err)
		}
	}
}

// A tunnelLink is the interface of a tunnel.
type tunnelLink struct {
	mtu uint
	own []netip.Prefix // its addresses
}

// flags adds the flags that describe the interface.
func (l *tunnelLink) flags(fs *flag.FlagSet) {
	fs.Func("address", "an address of the interface, with the length of its prefix; may be given again", func(s string) error {
		p, err := netip.ParsePrefix(s)
		l.own = append(l.own, p)
		return err
	})
	fs.UintVar(&l.mtu, "mtu", 1500, "the interface's, in bytes")
}

// open makes the interface and sets it up, with a default route for each address
// family. Its descriptor is in blocking mode.
func (l *tunnelLink) open() (*os.File, error) {
	if l.mtu > maxPacket {
		return nil, fmt.Errorf("an MTU of %d is more than %d", l.mtu, maxPacket)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(tunnelName)
	if err != nil {
		return nil, err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make interface: %w", err)
	}
	tun := os.NewFile(uintptr(fd), "tun")
	if err := l.setUp(); err != nil {
		tun.Close()
		return nil, err
	}
	return tun, nil
}

func (l *tunnelLink) setUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq(tunnelName)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFINDEX, ifr); err != nil {
		return fmt.Errorf("find interface: %w", err)
	}
	index := ifr.Uint32()
	if err := linkUp(index, uint32(l.mtu)); err != nil {
		return fmt.Errorf("set interface up: %w", err)
	}
	for _, p := range l.own {
		err := addAddress(index, p)
		if err == nil {
			err = addDefaultRoute(index, p.Addr())
		}
		switch {
		case p.Addr().Is6() && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP)):
			// The container engine has disabled IPv6 in the sandbox: do without.
		case err != nil:
			return fmt.Errorf("set address %s: %w", p, err)
		}
	}
	return nil
}

// create are the flags of a request for a new object.
const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL

// linkUp sets the MTU of an interface and brings it up. gVisor has no ioctl for that.
func linkUp(index, mtu uint32) error {
	m := binary.NativeEndian.AppendUint32(make([]byte, 4), index)
	m = binary.NativeEndian.AppendUint32(m, unix.IFF_UP) // the flags
	m = binary.NativeEndian.AppendUint32(m, unix.IFF_UP) // which of them change
	m = appendAttribute(m, unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, mtu))
	return askKernel(unix.RTM_SETLINK, 0, m)
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func addAddress(index uint32, p netip.Prefix) error {
	m := binary.NativeEndian.AppendUint32([]byte{family(p.Addr()), byte(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}, index)
	m = appendAttribute(m, unix.IFA_LOCAL, p.Addr().AsSlice())
	m = appendAttribute(m, unix.IFA_ADDRESS, p.Addr().AsSlice())
	return askKernel(unix.RTM_NEWADDR, create, m)
}

func addDefaultRoute(index uint32, of netip.Addr) error {
	m := []byte{family(of), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_LINK, unix.RTN_UNICAST, 0, 0, 0, 0}
	m = appendAttribute(m, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, index))
	// gVisor wants a destination, also for a default route.
	m = appendAttribute(m, unix.RTA_DST, make([]byte, of.BitLen()/8))
	return askKernel(unix.RTM_NEWROUTE, create, m)
}

// appendAttribute adds an attribute to a netlink message. The attributes used
// here need no padding.
func appendAttribute(m []byte, kind uint16, value []byte) []byte {
	m = binary.NativeEndian.AppendUint16(m, uint16(unix.SizeofRtAttr+len(value)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	return append(m, value...)
}

// askKernel sends a netlink request to the OS kernel and returns its answer.
func askKernel(kind, flags uint16, body []byte) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	m = append(m, make([]byte, 8)...) // sequence number and port ID
	if err := unix.Sendto(s, append(m, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, os.Getpagesize())
	n, _, err := unix.Recvfrom(s, buf, 0)
	if err != nil {
		return err
	}
	const status = unix.SizeofNlMsghdr + 4
	if n < status || binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel does not answer")
	}
	if code := int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
