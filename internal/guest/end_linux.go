package guest

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// endEvent describes how c ended.
func endEvent(c *child, detail *guestapi.EndDetail) *guestapi.EndEvent {
	ev := &guestapi.EndEvent{Detail: detail}
	if c.status.Signaled() {
		sig := c.status.Signal()
		detail.Signal = int(sig)
		ev.ExitCode = -1
		ev.Status = "signal: " + sig.String()
		if c.status.CoreDump() {
			ev.Status += " (core dumped)"
		}
	} else {
		ev.Exited = true
		ev.ExitCode = int32(c.status.ExitStatus())
		ev.Status = "exit status " + strconv.Itoa(c.status.ExitStatus())
	}
	detail.CPUMillis = (c.usage.Utime.Nano() + c.usage.Stime.Nano()) / 1e6
	detail.PeakMemoryBytes = c.usage.Maxrss << 10 // counted in KiB
	return ev
}

// describeEnd adds to detail what can be told when all output is there.
func (g *Guest) describeEnd(p *process, failed bool, detail *guestapi.EndDetail) {
	detail.TimedOut = p.timedOut.Load()
	if g.hasStrangers() {
		if left, err := living(func(all map[int]procInfo) []procInfo { return g.members(p, all) }); err == nil {
			detail.Left = len(left)
		}
	}
	if !failed {
		return
	}
	text := p.out.text()
	detail.DiskFull = detail.DiskFull || tellsAny(text, diskTexts)
	detail.ProcessLimit = detail.ProcessLimit || tellsAny(text, forkTexts) || g.sawRefusal()
	detail.MemoryKill = tellsAny(text, memoryTexts) ||
		p.child.status.Signaled() && p.child.status.Signal() == unix.SIGKILL && !detail.TimedOut && g.sawOOMKill()
}

// What programs say at their end when something was refused. The texts are
// those of the C library, of shells, and of common languages.
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

// tellsAny reports whether one of the last lines of text has one of texts: what
// a program said long before its end is not why it failed.
func tellsAny(text string, texts []string) bool {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	const last = 24 // a stack trace follows the reason in some languages
	for _, line := range lines[max(0, len(lines)-last):] {
		for _, t := range texts {
			if strings.Contains(line, t) {
				return true
			}
		}
	}
	return false
}

// minRoom is less than any file system has that is not full: what is left of a
// full one may be a few blocks that a large write does not fit.
const minRoom = 64 << 10

// diskFull reports whether a file system that a program writes to has no room.
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

// atProcessLimit reports whether there are as many programs and threads of them
// as the limit allows, or were a moment ago: what grows until it is refused also
// loses some meanwhile. They count whoever's they are, as sandbox-root can be any
// user; but a guest that runs programs as itself may see others than its sandbox's.
func (g *Guest) atProcessLimit() bool {
	if g.cfg.MaxProcesses == 0 {
		return false
	}
	all, err := allProcs()
	if err != nil {
		return false
	}
	own := os.Getpid()
	n := 1 // the one that has just ended, or is about to be ended
	for pid, info := range all {
		var st unix.Stat_t
		if pid == own || g.cfg.AsSelf && (unix.Stat("/proc/"+strconv.Itoa(pid), &st) != nil || int(st.Uid) != os.Geteuid()) {
			continue
		}
		n += max(info.threads, 1)
	}
	return n >= g.cfg.MaxProcesses-max(1, g.cfg.MaxProcesses/16)
}

// sawRefusal reports whether the kernel refused a fork because of the limit on
// processes since it was asked last.
func (g *Guest) sawRefusal() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.refused
	g.refused = readRefusals()
	return g.refused > before
}

// sawOOMKill reports whether the kernel killed a process of the sandbox for
// memory since it was asked last.
func (g *Guest) sawOOMKill() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.oom
	g.oom = readOOMKills()
	return g.oom > before
}
