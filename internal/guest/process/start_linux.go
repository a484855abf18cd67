package process

import (
	"cmp"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Reserve makes a process of a that is not started yet, and gives it its number.
// The next calls are Environment, Locate, Exec and Track. Nothing has to be
// undone if one of them fails.
func (s *Set) Reserve(a *account.Account, cfg guestapi.ProcessConfig) (*Process, error) {
	return s.reserve("", a, cfg, false)
}

// reserve is Reserve with a tag. With keep, the process's output is kept while
// no stream is attached.
func (s *Set) reserve(tag string, a *account.Account, cfg guestapi.ProcessConfig, keep bool) (*Process, error) {
	id, err := s.table.reserve(tag)
	if err != nil {
		return nil, err
	}
	return &Process{id: id, config: cfg, account: a, out: newOutput(keep, &s.table.held)}, nil
}

// Environment returns the environment of a process, with its marker.
func (s *Set) Environment(p *Process) []string { return s.environment(p, false) }

// Variables returns the environment of a process of a with additional variables,
// without a marker.
func (s *Set) Variables(a *account.Account, extra map[string]string) []string {
	return s.cfg.environment(a, extra, false)
}

func (s *Set) environment(p *Process, terminal bool) []string {
	return append(s.cfg.environment(p.account, p.config.Envs, terminal), MarkerName+"="+s.markers.of(p.id))
}

// Locate decides in which directory p starts, and returns the file of the first
// command that exists. If none does, it returns missing, or the last command's
// own error if missing is nil.
func (s *Set) Locate(p *Process, env []string, missing error, commands ...string) (file string, err error) {
	err = s.accounts.As(p.account, func() (err error) {
		if p.cwd, err = workingDir(cmp.Or(p.config.Cwd, s.cfg.WorkDir, s.cfg.imageDir()), p.account); err != nil {
			return err
		}
		for _, command := range commands {
			if file, err = findCommand(command, p.cwd, env); err == nil {
				return nil
			}
		}
		if missing != nil {
			return missing
		}
		return err
	})
	return file, err
}

// Exec starts the located file as p, in a session of its own. The name of the
// program is file. After an error the caller closes d.
func (s *Set) Exec(p *Process, file string, args, env []string, d *Descriptors) error {
	p.config.Cmd, p.config.Args = file, args
	return s.exec(p, file, env, d, false)
}

// exec starts p's program. With terminal, descriptor 0 becomes the terminal of
// its session.
func (s *Set) exec(p *Process, file string, env []string, d *Descriptors, terminal bool) error {
	attr := &syscall.ProcAttr{Dir: p.cwd, Env: env, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: terminal}}
	argv := append([]string{p.config.Cmd}, p.config.Args...)
	child := new(Child)
	if err := s.fork(child, file, argv, attr, p.account, d); err != nil {
		return execError(err, p.config.Cmd, file)
	}
	p.child = child
	d.closeChild()
	if info, ok := procfs.Read(child.pid); ok {
		p.began = info.Start
	}
	return nil
}

// fork starts a program as a, with the descriptors d.
func (s *Set) fork(c *Child, file string, argv []string, attr *syscall.ProcAttr, a *account.Account, d *Descriptors) error {
	return s.forkIn(-1, c, file, argv, attr, a, d)
}

// forkIn is fork in the directory with the descriptor dir. With -1, attr names the
// directory.
func (s *Set) forkIn(dir int, c *Child, file string, argv []string, attr *syscall.ProcAttr, a *account.Account, d *Descriptors) error {
	for _, fd := range d.child {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if !s.cfg.AsSelf {
		attr.Sys.Credential = a.Credential()
	}
	// beforeFork changes this thread, so that the child inherits the change. It
	// does not affect the guest: a dropped bounding capability matters only at
	// an exec.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := -1
	before := func() error {
		s.inheritance.beforeFork()
		if dir < 0 {
			return nil
		}
		// The child inherits the guest's directory. Nothing else in the guest depends
		// on that, as all of its paths are absolute.
		var err error
		if home, err = unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Fchdir(dir)
	}
	after := func() {
		if home >= 0 {
			_ = unix.Fchdir(home) // the guest was there before
			unix.Close(home)
		}
		s.inheritance.afterFork()
	}
	return s.children.start(c, file, argv, attr, before, after)
}

// Track adds a started process to the processes that callers can name, until
// End. The list of processes leaves it out: it is a part of the sandbox, such as
// an interpreter, and not a program that a caller started.
func (s *Set) Track(p *Process) { s.table.add(&run{Process: p, part: true}) }

// StartHelper starts the guest's own program as a, for a piece of work that is
// not tracked. It closes the process's descriptors in d.
func (s *Set) StartHelper(argv, env []string, a *account.Account, d *Descriptors) (*Child, error) {
	attr := &syscall.ProcAttr{Dir: "/", Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	c := new(Child)
	err := s.fork(c, "/proc/self/exe", argv, attr, a, d)
	d.closeChild()
	if err != nil {
		return nil, err
	}
	return c, nil
}
