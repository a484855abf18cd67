package state

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

// seal writes the content of a file into the directory of the state, compressed and then
// encrypted. It returns the sums of the content and of what is on the disk.
func (w *Writer) seal(f *os.File, m *Manifest, name string) (content, stored Sum, err error) {
	out, err := os.OpenFile(filepath.Join(w.dir+newSuffix, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return content, stored, err
	}
	defer out.Close()
	written := &summer{w: out}
	s, err := sealed.NewWriter(written, w.key, m.Box, m.ID, name)
	if err != nil {
		return content, stored, noSpace(err)
	}
	// The box stands still meanwhile.
	z, err := zstd.NewWriter(s, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithWindowSize(window))
	if err != nil {
		return content, stored, err
	}
	read := &summer{w: z}
	_, err = io.CopyBuffer(struct{ io.Writer }{read}, io.NewSectionReader(f, 0, 1<<62), make([]byte, 1<<20))
	if err = errors.Join(err, z.Close()); err == nil {
		err = s.Close()
	}
	if err == nil {
		err = out.Sync()
	}
	return read.sum, written.sum, noSpace(err)
}

// contentOf returns a reader of what a file of the state has before it is decompressed.
func (s *State) contentOf(name string, stored io.Reader) (io.Reader, error) {
	if s.key == nil {
		return stored, nil
	}
	return sealed.NewReader(stored, s.key, s.Manifest.Box, s.Manifest.ID, name)
}

// inMemory makes a file in memory, which will have up to room bytes.
func inMemory(room int64) (*os.File, error) {
	available, err := availableMemory()
	if err != nil {
		return nil, err
	}
	if room > available {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "an encrypted state needs %s of memory while it is saved or woken, and this machine has %s", sandbox.FormatBytes(room), sandbox.FormatBytes(available)),
			"try again when other sandboxes have ended")
	}
	fd, err := unix.MemfdCreate("saved-state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "saved-state"), nil
}

// availableMemory returns how many bytes of memory this machine can give away.
func availableMemory() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// MemAvailable:   20123456 kB
		if value, is := strings.CutPrefix(lines.Text(), "MemAvailable:"); is {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read /proc/meminfo: it does not say how much memory is available: %w", lines.Err())
}
