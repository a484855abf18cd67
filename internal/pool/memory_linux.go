package pool

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// reserve bounds the memory of the pool: 1/reserve of the machine's memory stays
// free.
const reserve = 10

// HasRoom reports whether the machine has so many bytes of memory to spare. It
// returns true if the memory is unknown.
func HasRoom(bytes int64) bool {
	text, err := os.ReadFile("/proc/meminfo")
	return err != nil || roomIn(text, bytes)
}

// roomIn is HasRoom for the text of /proc/meminfo.
func roomIn(meminfo []byte, size int64) bool {
	total, available := int64(-1), int64(-1)
	for lines := bufio.NewScanner(bytes.NewReader(meminfo)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kb, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			total = kb << 10
		case "MemAvailable:":
			available = kb << 10
		}
	}
	return total < 0 || available < 0 || available-total/reserve >= size
}
