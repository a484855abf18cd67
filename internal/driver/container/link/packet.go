package link

import (
	"encoding/binary"
	"io"
)

// MaxPacket is the maximum size of a packet, in bytes.
const MaxPacket = 1<<16 - 1

// ReadPacket reads a length and a packet of that length into buf, and returns the
// packet. buf has room for MaxPacket bytes.
func ReadPacket(r io.Reader, buf []byte) ([]byte, error) {
	if _, err := io.ReadFull(r, buf[:2]); err != nil {
		return nil, err
	}
	packet := buf[:binary.BigEndian.Uint16(buf)]
	_, err := io.ReadFull(r, packet)
	return packet, err
}
