package docker

import (
	"encoding/binary"
	"io"
)

// maxPacket is the most that a packet may have, in bytes.
const maxPacket = 1<<16 - 1

// readPacket reads a packet, behind its length, into buf, which has room for
// maxPacket.
func readPacket(r io.Reader, buf []byte) ([]byte, error) {
	if _, err := io.ReadFull(r, buf[:2]); err != nil {
		return nil, err
	}
	packet := buf[:binary.BigEndian.Uint16(buf)]
	_, err := io.ReadFull(r, packet)
	return packet, err
}
