package contexts

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// follow waits for the interpreter's end and reports it.
func (it *interpreter) follow() {
	p, c := it.process, it.context
	processes := c.server.processes
	<-p.Done()
	detail := processes.EarlyDetail(p)
	p.AwaitKill()
	// Read the last output and events, which are still in the pipes.
	it.order.Lock()
	it.drainEventsLocked()
	it.drainOutputsLocked()
	it.order.Unlock()
	ended := processes.DescribeEnd(p, detail)
	// Kill the processes that it started: no run owns them any more.
	_ = processes.Kill(p)
	it.order.Lock()
	it.drainOutputsLocked()
	it.flushOutputsLocked()
	it.order.Unlock()
	var one [8]byte
	one[0] = 1
	_, _ = unix.Write(it.quit, one[:])

	c.mu.Lock()
	run := c.run
	if c.live == it {
		c.live = nil
	}
	c.lost = deathCause(ended)
	cause := c.lost
	c.mu.Unlock()
	processes.End(p, ended)
	close(it.dead)
	for _, f := range []*os.File{it.requests, it.events, it.code, it.stdin} {
		if f != nil {
			f.Close()
		}
	}
	if run != nil && run.interpreter == it {
		run.died(ended, cause)
	}
}

// deathCause describes in words how an interpreter ended.
func deathCause(ended *guestapi.EndEvent) string {
	d := ended.Detail
	switch {
	case d.MemoryKill:
		return "the interpreter was killed for memory"
	case ended.Exited:
		return "the interpreter exited (" + ended.Status + ")"
	}
	return "the interpreter was ended by a signal (" + strings.TrimPrefix(ended.Status, "signal: ") + ")"
}
