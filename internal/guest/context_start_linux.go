package guest

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
)

const (
	// maxReady bounds the start of an interpreter.
	maxReady = time.Minute
	// kernelPipe is the size of the output pipes, in bytes. A larger pipe wakes
	// the guest less often.
	kernelPipe = 1 << 20
)

// An interpreter is the process of a context.
type interpreter struct {
	e       *evaluator
	p       *process
	command string
	key     string

	requests *os.File // for writing; requestTurn is held
	events   *os.File
	outputs  [2]outlet // for reading
	quit     int       // an eventfd that ends the reading
	code     *os.File  // of a shell: the code of the run
	stdin    *os.File  // of a shell: for writing
	version  string    // guarded by e.mu
	runs     int       // guarded by e.mu

	peakBytes   atomic.Int64
	requestTurn sync.Mutex
	// order is held while output or an event is read and delivered. It keeps
	// output in front of the event that follows it.
	order     sync.Mutex
	assembler kernels.Assembler
	junk      int

	ready    chan struct{} // closed when the kernel is ready
	prepared chan struct{} // has a value when the kernel has prepared
	dead     chan struct{} // closed when the interpreter is gone
}

// ensure returns the context's interpreter, and starts one if there is none. The
// caller holds the context's turn, or has just made the context.
func (e *evaluator) ensure(done <-chan struct{}) (*interpreter, error) {
	e.mu.Lock()
	k, removed := e.live, e.removed
	e.mu.Unlock()
	if removed {
		return nil, errNoContext
	}
	if k != nil {
		select {
		case <-k.dead:
		default:
			return k, k.wait(done)
		}
	}
	k, err := e.start()
	if err != nil {
		return nil, err
	}
	return k, k.wait(done)
}

// wait waits until the kernel is ready.
func (k *interpreter) wait(done <-chan struct{}) error {
	select {
	case <-k.ready:
		return nil
	default:
	}
	timer := time.NewTimer(maxReady)
	defer timer.Stop()
	select {
	case <-k.ready:
		return nil
	case <-k.dead:
		text := strings.TrimSpace(k.p.out.text())
		if i := strings.LastIndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
		return rpc.Errorf(guestapi.CodeUnavailable, "%s did not start as an interpreter of %s: %s", k.command, k.e.program.Language, text)
	case <-timer.C:
		_ = k.e.g.killTree(k.p)
		return rpc.Errorf(guestapi.CodeUnavailable, "%s did not start within %s", k.command, maxReady)
	case <-done:
		return rpc.Errorf(guestapi.CodeCanceled, "the caller left")
	}
}

// start starts an interpreter.
func (e *evaluator) start() (*interpreter, error) {
	g := e.g
	id, err := g.procs.reserve("")
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	cwd, envs := e.cwd, e.env // replaced, never changed
	e.mu.Unlock()
	p := &process{
		g: g, id: id, account: e.account, config: guestapi.ProcessConfig{Cwd: cwd, Envs: envs},
		out: newOutput(false, &g.procs.held), expired: make(chan struct{}),
	}
	k := &interpreter{e: e, p: p, ready: make(chan struct{}), prepared: make(chan struct{}, 1), dead: make(chan struct{})}
	var key [kernels.KeySize / 2]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, err
	}
	k.key = hex.EncodeToString(key[:])
	k.assembler.Key = k.key
	if err := k.spawn(); err != nil {
		g.procs.release("")
		return nil, err
	}
	g.procs.add(p)
	e.mu.Lock()
	e.live = k
	removed := e.removed
	e.mu.Unlock()
	go k.read()
	go k.listen()
	go k.follow()
	// In a goroutine: a kernel that never reads must not block the caller.
	go func() {
		_ = k.request(e.program.Start(k.command, kernels.Init{Key: k.key, Prepare: e.prepare}))
	}()
	if removed {
		// The context was removed meanwhile, and end found no interpreter.
		_ = g.killTree(p)
		return nil, rpc.Errorf(guestapi.CodeNotFound, "context %s was removed", e.id)
	}
	return k, nil
}

// request writes to the kernel. An error means that the kernel is dead or dying.
func (k *interpreter) request(b []byte) error {
	k.requestTurn.Lock()
	defer k.requestTurn.Unlock()
	_, err := k.requests.Write(b)
	return err
}

// spawn makes the interpreter's descriptors and starts its program.
func (k *interpreter) spawn() error {
	e, g, p := k.e, k.e.g, k.p
	env := append(g.environment(p.account, p.config.Envs, false), markerName+"="+g.markers.of(p.id))
	var file string
	err := g.accounts.As(p.account, func() (err error) {
		dir := p.config.Cwd
		if dir == "" {
			dir = cmp.Or(g.cfg.WorkDir, g.imageDir())
		}
		if p.cwd, err = workingDir(dir, p.account); err != nil {
			return err
		}
		for _, command := range e.program.Commands {
			if file, err = findCommand(command, p.cwd, env); err == nil {
				return nil
			}
		}
		return rpc.Errorf(guestapi.CodeNotFound, "%s is not in this sandbox: no %s on its PATH", e.program.Language, strings.Join(e.program.Commands, " or "))
	})
	if err != nil {
		return err
	}
	k.command = file
	pl := &plumbing{}
	k.outputs = [2]outlet{{fd: -1, stream: guestapi.Stdout}, {fd: -1, stream: guestapi.Stderr}}
	closeAll := func() {
		pl.closeAll()
		for _, fd := range []int{k.quit, k.outputs[0].fd, k.outputs[1].fd} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
	fail := func(err error) error {
		closeAll()
		return rpc.Exhausted("make descriptors of an interpreter", err)
	}
	if k.quit, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		k.quit = -1
		return fail(err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	pl.child = append(pl.child, null)
	for i := range k.outputs {
		if k.outputs[i].fd, err = pl.outlet(); err != nil {
			return fail(err)
		}
	}
	if k.requests, err = pl.pipe(true); err != nil {
		return fail(err)
	}
	if k.events, err = pl.messages(); err != nil {
		return fail(err)
	}
	if e.program.Shell {
		if k.code, err = pl.memory(); err != nil {
			return fail(err)
		}
		if k.stdin, err = pl.pipe(true); err != nil {
			return fail(err)
		}
	}
	if !g.cfg.AsSelf {
		// Programs can then open /dev/stdout, and the kernel can open its own
		// outputs. They work without, so an error is ignored.
		for _, fd := range pl.child[1:3] {
			_ = unix.Fchown(fd, int(p.account.UID), int(p.account.GID))
		}
	}
	attr := &syscall.ProcAttr{Dir: p.cwd, Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, fd := range pl.child {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if !g.cfg.AsSelf {
		attr.Sys.Credential = p.account.Credential()
	}
	runtime.LockOSThread() // see spawn of processes
	defer runtime.UnlockOSThread()
	p.config.Cmd, p.config.Args = file, e.program.Args(file)
	p.child, err = g.children.start(file, append([]string{file}, p.config.Args...), attr, g.beforeFork, g.afterFork)
	if err != nil {
		closeAll()
		return execError(err, file, file)
	}
	pl.closeChild()
	if info, ok := procfs.Read(p.child.pid); ok {
		p.began = info.Start
	}
	return nil
}

// outlet makes an output pipe and returns the guest's end. The end is not an
// os.File: the runtime's poller would wake at every write of the child.
func (pl *plumbing) outlet() (int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	pl.child = append(pl.child, fds[1])
	// If the OS kernel refuses a larger buffer, the usual one stays.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, kernelPipe)
	return fds[0], unix.SetNonblock(fds[0], true)
}

// messages makes a SOCK_SEQPACKET pair. The child's end blocks.
func (pl *plumbing) messages() (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	pl.child = append(pl.child, fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "events")
	pl.ours = append(pl.ours, f)
	return f, nil
}

// memory makes an unnamed memory file that the child shares.
func (pl *plumbing) memory() (*os.File, error) {
	fd, err := unix.MemfdCreate("code", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "code")
	pl.ours = append(pl.ours, f)
	// A duplicate shares the file offset, so the guest can set the child's
	// offset.
	theirs, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	pl.child = append(pl.child, theirs)
	return f, nil
}

// setCode replaces the contents of the shell's code file.
func (k *interpreter) setCode(code []byte) error {
	if err := k.code.Truncate(0); err != nil {
		return err
	}
	if _, err := k.code.WriteAt(code, 0); err != nil {
		return err
	}
	_, err := k.code.Seek(0, io.SeekStart)
	return err
}

// maxSaved bounds the state that a shell saves, in bytes.
const maxSaved = 8 << 20

// savedCode returns the state that a shell wrote after its run's code.
func (k *interpreter) savedCode(after int) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(k.code, int64(after), maxSaved))
}

// follow waits for the interpreter's end and reports it.
func (k *interpreter) follow() {
	p, e := k.p, k.e
	<-p.child.done
	var detail guestapi.EndDetail
	failed := !p.child.status.Exited() || p.child.status.ExitStatus() != 0
	if failed {
		detail.DiskFull = diskFull(p.cwd)
		detail.ProcessLimit = p.limitHit.Load() || e.g.atProcessLimit()
	}
	p.kills.Lock()
	p.kills.Unlock() //nolint:staticcheck // a kill that was asked for ends first
	// Read the last output and events, which are still in the pipes.
	k.order.Lock()
	k.drainEvents()
	k.drainOutputs()
	k.order.Unlock()
	e.g.describeEnd(p, failed, &detail)
	ended := endEvent(p.child, &detail)
	// Kill the processes that it started: no run owns them any more.
	_ = e.g.killTree(p)
	k.order.Lock()
	k.drainOutputs()
	k.flushOutputs()
	k.order.Unlock()
	var one [8]byte
	one[0] = 1
	_, _ = unix.Write(k.quit, one[:])

	e.mu.Lock()
	run := e.run
	if e.live == k {
		e.live = nil
	}
	e.lost = deathCause(ended)
	cause := e.lost
	e.mu.Unlock()
	e.g.procs.end(p)
	p.out.finish(ended)
	close(k.dead)
	for _, f := range []*os.File{k.requests, k.events, k.code, k.stdin} {
		if f != nil {
			f.Close()
		}
	}
	if run != nil && run.k == k {
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

// isClosed reports whether err comes from a closed file.
func isClosed(err error) bool { return errors.Is(err, os.ErrClosed) }
