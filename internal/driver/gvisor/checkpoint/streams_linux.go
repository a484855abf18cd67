package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Streams are the sockets that a sentry was given for its guest. A saved box must
// have none of them: gVisor saves a socket of the host by its number, and a restored
// guest would get the socket that has this number in the new sentry.
//
// Another supervisor may also give sockets to the sentry. So all sockets count that
// the sentry did not have when it started.
type Streams struct {
	mu     sync.Mutex
	closed bool            // the box is being saved
	coming int             // sockets that the running sentry is about to get
	given  map[uint64]bool // before the start, by inode
	own    map[uint64]bool // the sentry's, for its mounts and its link
}

// Give notes a socket before a running sentry gets it. Coming counts the socket until the
// caller calls given. By then, the sentry has it or will never get it.
func (s *Streams) Give(stream *os.File) (given func(), err error) {
	if err := s.Add(stream); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming++
	return func() { s.mu.Lock(); defer s.mu.Unlock(); s.coming-- }, nil
}

// Add notes a socket before the sentry starts with it.
func (s *Streams) Add(stream *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(stream.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return sandbox.Errorf(sandbox.Conflict, "the sandbox is being saved")
	}
	if s.own == nil {
		if s.given == nil {
			s.given = map[uint64]bool{}
		}
		s.given[st.Ino] = true
	}
	return nil
}

// Started notes the sockets of a sentry that has just started. Only those that were
// noted by Add are the guest's.
func (s *Streams) Started(f SentryFiles) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = map[uint64]bool{}
	for inode := range f.Sockets {
		if !s.given[inode] {
			s.own[inode] = true
		}
	}
	s.given = nil
}

// Ended forgets a sentry that has ended.
func (s *Streams) Ended() { s.mu.Lock(); defer s.mu.Unlock(); s.given, s.own = nil, nil }

// Close refuses further sockets, until Open.
func (s *Streams) Close() { s.mu.Lock(); defer s.mu.Unlock(); s.closed = true }

// Open undoes Close.
func (s *Streams) Open() { s.mu.Lock(); defer s.mu.Unlock(); s.closed = false }

// Coming returns how many sockets the sentry is about to get. After Close, the number only
// falls.
func (s *Streams) Coming() int { s.mu.Lock(); defer s.mu.Unlock(); return s.coming }

// Held returns how many sockets of the guest a sentry has.
func (s *Streams) Held(f SentryFiles) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for inode := range f.Sockets {
		if !s.own[inode] {
			n++
		}
	}
	return n
}

// SentryFiles are the open files of a sentry, as the host sees them.
type SentryFiles struct {
	Sockets map[uint64]bool // those without a name, by inode
	Memory  int64           // bytes of the programs' memory
	Written int64           // bytes of the writable layer
}

// ReadSentryFiles looks at the descriptors of a sentry.
func ReadSentryFiles(sentry int) (f SentryFiles, err error) {
	f.Sockets = map[uint64]bool{}
	dir := filepath.Join("/proc", strconv.Itoa(sentry), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return f, fmt.Errorf("read the files of the box's kernel: %w", err)
	}
	named, err := namedSockets()
	if err != nil {
		return f, err
	}
	seen := map[uint64]bool{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil {
			continue // closed meanwhile
		}
		if inode, is := strings.CutPrefix(target, "socket:["); is {
			n, err := strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 64)
			if err != nil {
				return f, fmt.Errorf("read the files of the box's kernel: %q", target)
			}
			if !named[n] {
				f.Sockets[n] = true
			}
			continue
		}
		memory := strings.Contains(target, memwatch.FileName)
		if !memory && !strings.HasPrefix(filepath.Base(target), upperPrefix) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		if memory {
			f.Memory += st.Blocks * 512
		} else {
			f.Written += st.Blocks * 512
		}
	}
	return f, nil
}

// namedSockets returns the Unix sockets that have a name, by inode. Connections to the
// control socket of a sentry have its name; sockets for guests have none. The named
// ones are read after the list of descriptors, so a connection that is accepted
// meanwhile is found, or is counted for a moment.
func namedSockets() (map[uint64]bool, error) {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("read the machine's sockets: %w", err)
	}
	named := map[uint64]bool{}
	for line := range strings.Lines(string(data)) {
		// Num RefCount Protocol Flags Type St Inode Path
		if f := strings.Fields(line); len(f) > 7 {
			if inode, err := strconv.ParseUint(f[6], 10, 64); err == nil {
				named[inode] = true
			}
		}
	}
	return named, nil
}

// upperPrefix begins the name of the file with the writable layer: see
// [sentry.Start].
const upperPrefix = "upper-"
