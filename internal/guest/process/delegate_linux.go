package process

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
)

// A Delegation asks for a delegate: a program that the guest starts in place of a
// process of the sandbox, so that it can run as another user. The delegate belongs
// to the same run or interpreter as that process, whose end, kill and usage cover
// it.
type Delegation struct {
	Caller  procfs.Process   // the process that asks, as it was then
	Account *account.Account // whose rights the delegate gets
	Args    []string         // with the command's name; not empty
	// Name is the name of the program in its own arguments, if that is not the
	// command's.
	Name string
	Env  []string // without a marker
	// Dir is a descriptor of the directory in which the delegate starts, which the
	// user of Account need not be able to enter. Cwd is the directory's name, for
	// commands with a relative path. With a Dir of -1, the delegate enters Cwd with
	// the rights of Account.
	Dir int
	Cwd string
	// Terminal is the number of the descriptor that becomes the terminal of the
	// delegate's session, or -1.
	Terminal int
}

// ErrCallerGone is the error of a delegation whose caller has ended.
var ErrCallerGone = errors.New("the caller has ended")

// Delegate starts a delegate in a session of its own, with the descriptors d. It
// closes d. The error is [ErrCallerGone], or one of package rpc.
func (s *Set) Delegate(req *Delegation, d *Descriptors) (*Child, error) {
	defer d.CloseAll()
	env, cwd := req.Env, req.Cwd
	var file string
	err := s.accounts.As(req.Account, func() (err error) {
		if req.Dir < 0 {
			if cwd, err = workingDir(req.Cwd, req.Account); err != nil {
				return err
			}
		}
		file, err = findCommand(req.Args[0], cwd, env)
		return err
	})
	if err != nil {
		return nil, err
	}
	c := &Child{delegate: true}
	c.credit, c.owner = s.trees.ownerOf(req.Caller)
	if c.owner != 0 {
		env = append(env, MarkerName+"="+s.markers.of(c.owner))
	}
	if c.credit != nil {
		// A kill of the process's tree happens before or after the start. Before it,
		// the caller is dead by now; after it, the delegate is a member of the tree.
		c.credit.kills.Lock()
		defer c.credit.kills.Unlock()
	}
	if now, ok := procfs.Read(req.Caller.PID); !ok || now.Start != req.Caller.Start || now.Dead() {
		return nil, ErrCallerGone
	}
	argv := slices.Clone(req.Args)
	if req.Name != "" {
		argv[0] = req.Name
	}
	attr := &syscall.ProcAttr{Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	if req.Dir < 0 {
		attr.Dir = cwd
	}
	if req.Terminal >= 0 {
		attr.Sys.Setctty, attr.Sys.Ctty = true, req.Terminal
	}
	if err := s.forkIn(req.Dir, c, file, argv, attr, req.Account, d); err != nil {
		return nil, execError(err, req.Args[0], file)
	}
	return c, nil
}

// SignalGroup signals the process group of c. It returns ESRCH if c has ended.
func (c *Child) SignalGroup(sig unix.Signal) error { return c.signal(sig, true) }

// addUsage counts the usage of an ended delegate as p's.
func (p *Process) addUsage(u *unix.Rusage) {
	p.delegatedCPU.Add(processorTime(u))
	for {
		was := p.delegatedPeak.Load()
		if u.Maxrss <= was || p.delegatedPeak.CompareAndSwap(was, u.Maxrss) {
			return
		}
	}
}

// processorTime returns nanoseconds.
func processorTime(u *unix.Rusage) int64 { return u.Utime.Nano() + u.Stime.Nano() }

// maxAncestors bounds the search for the owner of a process.
const maxAncestors = 4096

// ownerOf returns the number of the process to whose tree d belongs, and the
// process itself if it is tracked. The number is 0 if nobody knows. The rules are
// those of members.
func (ts *trees) ownerOf(d procfs.Process) (*Process, uint64) {
	for range maxAncestors {
		if d.PPID == ts.pid {
			return ts.ownerOfChild(d)
		}
		parent, ok := procfs.Read(d.PPID)
		if !ok {
			return nil, 0
		}
		d = parent
	}
	return nil, 0
}

// ownerOfChild is ownerOf for a child of the guest.
func (ts *trees) ownerOfChild(d procfs.Process) (*Process, uint64) {
	child := ts.children.child(d.PID) // a process that was read is known by now
	tracked := ts.table.byPID()
	switch q := tracked[d.PID]; {
	case child != nil && child.delegate:
		return child.credit, child.owner
	case child != nil && q != nil:
		return q, q.id
	}
	if q := tracked[d.SID]; q != nil && d.Start >= q.began {
		return q, q.id
	}
	if c := ts.children.child(d.SID); c != nil && c.delegate {
		return c.credit, c.owner
	}
	id, ok := ts.markers.id(ts.environ(d.PID, MarkerName))
	if !ok {
		return nil, 0
	}
	for _, q := range tracked {
		if q.id == id {
			return q, id
		}
	}
	return nil, id
}
