package link

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/network"
)

// Available means that boxes can have a network on this platform.
const Available = true

// A Link carries packets between a box's tunnel and its process of
// package network. The container's packets have no Ethernet header; those of the
// process have one.
type Link struct {
	tunnel io.ReadWriteCloser
	socket *os.File
	lock   *os.File
	once   sync.Once
}

// Lock returns the lock of a process that carries the network of dir, or nil
// if another process holds it. The host kernel releases it when the process ends.
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}

// Start starts the process and carries packets until either side ends. Then it
// releases the lock.
func Start(program, ref, dir string, opts network.Options, tunnel io.ReadWriteCloser, lock *os.File) (*Link, error) {
	opts.Sums = true
	p, socket, err := network.Start(program, ref, dir, opts)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if child, err := os.FindProcess(p.Pid); err == nil {
			_, _ = child.Wait()
		}
	}()
	defer socket.Close()
	fd, err := unix.FcntlInt(socket.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// A non-blocking descriptor lets Close interrupt a read.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	l := &Link{tunnel: tunnel, socket: os.NewFile(uintptr(fd), "link"), lock: lock}
	go l.carryOut()
	go l.carryIn()
	go network.KeepFresh(ended, func() []string { return []string{dir} })
	return l, nil
}

// Close ends the link and both its sides. It is idempotent, and accepts a nil link.
func (l *Link) Close() {
	if l == nil {
		return
	}
	l.once.Do(func() {
		l.tunnel.Close()
		l.socket.Close()
		l.lock.Close()
	})
}

// The Ethernet header has two addresses and a type.
const (
	etherHeader = 14
	etherIPv4   = 0x0800
	etherIPv6   = 0x86dd
)

// carryOut carries packets from the box.
func (l *Link) carryOut() {
	defer l.Close()
	buf := make([]byte, etherHeader+MaxPacket)
	copy(buf, network.GatewayMAC)
	copy(buf[6:], network.GuestMAC)
	for {
		packet, err := ReadPacket(l.tunnel, buf[etherHeader:])
		if err != nil {
			return
		}
		if len(packet) == 0 {
			continue
		}
		switch packet[0] >> 4 {
		case 4:
			binary.BigEndian.PutUint16(buf[12:], etherIPv4)
		case 6:
			binary.BigEndian.PutUint16(buf[12:], etherIPv6)
		default:
			continue
		}
		if _, err := l.socket.Write(buf[:etherHeader+len(packet)]); err != nil {
			return
		}
	}
}

// carryIn carries packets to the box.
func (l *Link) carryIn() {
	defer l.Close()
	buf := make([]byte, etherHeader+MaxPacket)
	for {
		n, err := l.socket.Read(buf)
		if err != nil || n == 0 {
			return
		}
		kind := binary.BigEndian.Uint16(buf[12:])
		if n <= etherHeader || kind != etherIPv4 && kind != etherIPv6 {
			continue
		}
		// The packet's length overwrites the type at the end of the Ethernet
		// header.
		frame := buf[etherHeader-2 : n]
		binary.BigEndian.PutUint16(frame, uint16(n-etherHeader))
		if _, err := l.tunnel.Write(frame); err != nil {
			return
		}
	}
}
