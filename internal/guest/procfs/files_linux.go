package procfs

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadSmall reads the beginning of a file of /proc and returns the number of
// bytes, 0 if there is no such file.
func ReadSmall(path string, buf []byte) int {
	n, _ := TryReadSmall(path, buf)
	return n
}

// TryReadSmall is ReadSmall with an error if there is no such file.
func TryReadSmall(path string, buf []byte) (n int, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || m == 0 {
			break
		}
		n += m
	}
	return n, nil
}

// ReadBounded reads a file of /proc, of at most 64 KiB.
func ReadBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

// ParseMeminfo parses lines such as "MemTotal: 524288 kB", and returns bytes.
func ParseMeminfo(text []byte) map[string]int64 {
	m := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		number, _ := strings.CutSuffix(strings.TrimSpace(value), " kB")
		if n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64); err == nil {
			m[name] = n << 10
		}
	}
	return m
}
