package process

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
)

// shortages finds out which resource a program lacked.
type shortages struct {
	maxProcesses int // as in Config
	asSelf       bool

	mu sync.Mutex
	// The latest counts of OOM kills and of refused forks; guarded by mu.
	oom, refused int
}

func newShortages(cfg *Config) *shortages {
	return &shortages{
		maxProcesses: cfg.MaxProcesses, asSelf: cfg.AsSelf,
		oom: procfs.MemoryKills(), refused: procfs.ForkRefusals(),
	}
}

// Error messages of programs to which a resource was refused. They come from the
// C library, from shells, and from common languages.
var (
	diskTexts = []string{
		"No space left on device", "Disk quota exceeded", "ENOSPC",
	}
	forkTexts = []string{
		"fork: Resource temporarily unavailable", "fork: retry", "Cannot fork", "can't fork", "cannot fork",
		"BlockingIOError: [Errno 11]", "can't start new thread", "unable to create native thread",
		"failed to create new OS thread", "pthread_create failed", "uv_thread_create", "spawn EAGAIN",
	}
	memoryTexts = []string{
		"MemoryError", "Cannot allocate memory", "std::bad_alloc", "OutOfMemoryError",
		"JavaScript heap out of memory", "runtime: out of memory", "memory exhausted",
		"failed to allocate memory", "ENOMEM",
	}
)

// tellsAny reports whether one of the last lines of text contains one of texts.
// Earlier lines are not the reason of the end.
func tellsAny(text string, texts []string) bool {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	const last = 24 // some languages print a stack trace after the reason
	for _, line := range lines[max(0, len(lines)-last):] {
		for _, t := range texts {
			if strings.Contains(line, t) {
				return true
			}
		}
	}
	return false
}

// minRoom is the free space, in bytes, below which a file system counts as full.
// A full file system may have a few free blocks left, too few for a large write.
const minRoom = 64 << 10

// diskFull reports whether a file system that programs write to is full.
func diskFull(cwd string) bool {
	for _, dir := range []string{cwd, "/", "/tmp", "/dev/shm"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) != nil || st.Blocks == 0 || st.Flags&unix.ST_RDONLY != 0 {
			continue
		}
		size := uint64(st.Bsize)
		if st.Bavail*size < minRoom && st.Blocks*size > minRoom {
			return true
		}
	}
	return false
}

// atProcessLimit reports whether the number of programs and their threads is
// near the limit. A tree that grows until the limit loses some processes
// meanwhile, so the threshold is lower. All users' processes count, as
// sandbox-root can become any user. With AsSelf only the guest's user counts, as
// the guest may see processes outside its sandbox.
func (s *shortages) atProcessLimit() bool {
	if s.maxProcesses == 0 {
		return false
	}
	all, err := procfs.All()
	if err != nil {
		return false
	}
	own := os.Getpid()
	n := 1 // the process that has just ended, or is about to
	for pid, info := range all {
		var st unix.Stat_t
		if pid == own || s.asSelf && (unix.Stat("/proc/"+strconv.Itoa(pid), &st) != nil || int(st.Uid) != os.Geteuid()) {
			continue
		}
		n += max(info.Threads, 1)
	}
	return n >= s.maxProcesses-max(1, s.maxProcesses/16)
}

// sawRefusal reports whether the OS kernel refused a fork at the limit on
// processes since the last call.
func (s *shortages) sawRefusal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.refused
	s.refused = procfs.ForkRefusals()
	return s.refused > before
}

// sawOOMKill reports whether a process of the sandbox was OOM-killed since the
// last call.
func (s *shortages) sawOOMKill() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.oom
	s.oom = procfs.MemoryKills()
	return s.oom > before
}
