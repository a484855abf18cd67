package process

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A Process is a program that the guest started, with all its descendants: a run
// or the interpreter of a context. A [Set] makes it.
type Process struct {
	id      uint64 // never reused, unlike pids
	child   *Child
	began   uint64 // in clock ticks; a process that began earlier is not its descendant
	config  guestapi.ProcessConfig
	account *account.Account
	cwd     string
	out     *output

	kills    sync.Mutex // held while the tree is being killed
	timedOut atomic.Bool
	limitHit atomic.Bool // the process limit was reached at the kill

	// What ended delegates have used: nanoseconds, and KiB of the largest one.
	delegatedCPU, delegatedPeak atomic.Int64
}

// A run is a program that was started for a caller. It is tracked until a caller
// took its end. The run of an interpreter has only a Process.
type run struct {
	*Process
	tag      string
	keep     bool
	part     bool // of the sandbox: see Track
	sources  []*source
	terminal *os.File // the master side, nil without a terminal
	stdin    *input   // nil without input
	timer    *time.Timer
	expired  chan struct{} // closed when expire has returned
}

// PID returns the process's pid.
func (p *Process) PID() int { return p.child.pid }

// Dir returns the directory in which the process started.
func (p *Process) Dir() string { return p.cwd }

// Account returns the account of the process.
func (p *Process) Account() *account.Account { return p.account }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.child.done }

// Signal signals the process group of the process. It returns ESRCH if the
// process has ended.
func (p *Process) Signal(sig unix.Signal) error { return p.child.signal(sig, true) }

// Note keeps the end of error output that does not pass through the process's
// own streams.
func (p *Process) Note(data []byte) { p.out.note(data) }

// ErrorTail returns the end of the error output.
func (p *Process) ErrorTail() string { return p.out.text() }

// AwaitKill waits until a kill that a caller asked for is complete.
func (p *Process) AwaitKill() {
	p.kills.Lock()
	p.kills.Unlock() //nolint:staticcheck // waiting is all that is wanted
}

// failed reports whether an ended process ended in another way than by exit
// status 0.
func (p *Process) failed() bool {
	return !p.child.status.Exited() || p.child.status.ExitStatus() != 0
}
