package container

import (
	"encoding/binary"
	"io"
)

// maxPacket is the maximum size of a packet, in bytes.
const maxPacket = 1<<16 - 1

// readPacket reads a length and a packet of that length into buf, and returns the
// packet. buf has room for maxPacket bytes.
func readPacket(r io.Reader, buf []byte) ([]byte, error) {
	if _, err := io.ReadFull(r, buf[:2]); err != nil {
		return nil, err
	}
	packet := buf[:binary.BigEndian.Uint16(buf)]
	_, err := io.ReadFull(r, packet)
	return packet, err
}
