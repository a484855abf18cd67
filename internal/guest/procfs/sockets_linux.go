package procfs

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
)

// maxSockets bounds the text about sockets that is read, in bytes: some 25,000
// sockets.
const maxSockets = 4 << 20

// Listening returns the ports of the TCP sockets that listen, by their inodes.
func Listening() map[uint64]int {
	ports := map[uint64]int{}
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue // a kernel without IPv6
		}
		lines := bufio.NewScanner(io.LimitReader(f, maxSockets))
		for lines.Scan() {
			if inode, port, ok := parseListening(lines.Text()); ok {
				ports[inode] = port
			}
		}
		f.Close()
	}
	return ports
}

// parseListening parses a line of /proc/net/tcp. It returns false for a line that is
// not about a listening socket.
func parseListening(line string) (inode uint64, port int, ok bool) {
	// sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode
	f := strings.Fields(line)
	const local, state, node, listen = 1, 3, 9, "0A"
	if len(f) <= node || f[state] != listen {
		return 0, 0, false
	}
	_, text, _ := strings.Cut(f[local], ":")
	p, err := strconv.ParseUint(text, 16, 16)
	if err != nil || p == 0 {
		return 0, 0, false
	}
	inode, err = strconv.ParseUint(f[node], 10, 64)
	return inode, int(p), err == nil && inode != 0
}
