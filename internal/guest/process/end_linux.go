package process

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// endEvent describes how p ended.
func endEvent(p *Process, detail *guestapi.EndDetail) *guestapi.EndEvent {
	c := p.child
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
	detail.CPUMillis = (processorTime(&c.usage) + p.delegatedCPU.Load()) / 1e6
	detail.PeakMemoryBytes = max(c.usage.Maxrss, p.delegatedPeak.Load()) << 10 // counted in KiB
	return ev
}

// EarlyDetail returns the details of the end of p that change soon after it. The
// process has ended.
func (s *Set) EarlyDetail(p *Process) *guestapi.EndDetail {
	detail := new(guestapi.EndDetail)
	if p.failed() {
		detail.DiskFull = diskFull(p.cwd)
		detail.ProcessLimit = p.limitHit.Load() || s.shortages.atProcessLimit()
	}
	return detail
}

// DescribeEnd returns the end of p. It adds the details that need the complete
// output to detail.
func (s *Set) DescribeEnd(p *Process, detail *guestapi.EndDetail) *guestapi.EndEvent {
	detail.TimedOut = p.timedOut.Load()
	detail.Left = s.trees.left(p)
	if p.failed() {
		text := p.out.text()
		detail.DiskFull = detail.DiskFull || tellsAny(text, diskTexts)
		detail.ProcessLimit = detail.ProcessLimit || tellsAny(text, forkTexts) || s.shortages.sawRefusal()
		detail.MemoryKill = tellsAny(text, memoryTexts) ||
			p.child.status.Signaled() && p.child.status.Signal() == unix.SIGKILL && !detail.TimedOut && s.shortages.sawOOMKill()
	}
	return endEvent(p, detail)
}

// DescribeFailure adds to detail which resource code lacked that failed in a
// living process p; text is its error message.
func (s *Set) DescribeFailure(p *Process, text string, detail *guestapi.EndDetail) {
	detail.DiskFull = tellsAny(text, diskTexts) || diskFull(p.cwd)
	detail.ProcessLimit = tellsAny(text, forkTexts) || s.shortages.atProcessLimit()
	detail.MemoryKill = tellsAny(text, memoryTexts) || s.shortages.sawOOMKill()
}

// End ends the tracking of p, and sends its end to the attached streams.
func (s *Set) End(p *Process, ended *guestapi.EndEvent) {
	// The order matters: a caller that takes the end must find p among the
	// ended.
	s.table.end(p)
	p.out.finish(ended)
}

// Kill kills every process of p's tree and returns when none is left.
func (s *Set) Kill(p *Process) error { return s.trees.kill(p) }

// KillAsked is Kill for a caller or a deadline. The end of p reports whether the
// limit on processes was reached before.
func (s *Set) KillAsked(p *Process) error {
	p.limitHit.Store(p.limitHit.Load() || s.shortages.atProcessLimit())
	return s.trees.kill(p)
}
