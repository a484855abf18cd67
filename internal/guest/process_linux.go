package guest

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// maxQuiet bounds how long an ended process's output waits for more from
	// a descendant that holds it open.
	maxQuiet = 100 * time.Millisecond
	// maxLinger bounds how long such a descendant can draw out the end by
	// writing all the time.
	maxLinger = time.Second
	// pipeSize lets a process write on while its output is carried.
	pipeSize = 256 << 10
)

// A process was started for a caller, and is tracked until its end was taken.
type process struct {
	g        *Guest
	id       uint64 // never used again, as pids are
	child    *child
	began    uint64 // in clock ticks; what began before is not its descendant
	tag      string
	config   guestapi.ProcessConfig
	account  *account
	cwd      string
	keep     bool
	out      *output
	sources  []*source
	terminal *os.File // the master, if there is a terminal
	stdin    *input   // nil if there is none
	timer    *time.Timer
	expired  chan struct{} // closed when the timer has done its work

	kills    sync.Mutex // held while the tree is being killed
	timedOut atomic.Bool
	limitHit atomic.Bool // the process limit was reached when it was killed
}

// A source is a stream of output that is read.
type source struct {
	p      *process
	f      *os.File
	stream guestapi.Stream
	done   chan struct{} // closed when what counts was read

	total  atomic.Int64 // bytes read
	exited atomic.Bool  // the fields below are set
	owed   int64        // value of total when all is read that the process wrote
	until  time.Time    // when lingering ends
}

// read carries output until its end. When the process has exited, it goes on
// until all that the process wrote is read and descendants are quiet; what
// they write later is dropped, but they can write it.
func (s *source) read() {
	defer s.f.Close()
	rc, err := s.f.SyscallConn()
	if err != nil {
		close(s.done)
		return
	}
	for {
		if s.exited.Load() {
			if s.total.Load() >= s.owed && time.Now().After(s.until) {
				break
			}
			s.f.SetReadDeadline(time.Now().Add(maxQuiet))
		}
		buf, n, err := readChunk(rc)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if !s.exited.Load() {
				continue
			}
			// The time may have run out before this goroutine got to read what
			// was there, on a busy machine.
			if buf, n = readNow(rc); n == 0 {
				break
			}
			err = nil
		}
		if err != nil || n == 0 { // a terminal ends with EIO
			close(s.done)
			return
		}
		s.total.Add(int64(n))
		s.p.out.add(s.stream, buf, n)
	}
	close(s.done)
	s.f.SetReadDeadline(time.Time{})
	for {
		buf, n, err := readChunk(rc)
		if err != nil || n == 0 {
			return
		}
		chunkPool.Put(buf)
	}
}

// readChunk reads what is there, waiting for it without holding a buffer.
func readChunk(rc syscall.RawConn) (buf *[chunkSize]byte, n int, err error) {
	waitErr := rc.Read(func(fd uintptr) bool {
		buf = chunkPool.Get().(*[chunkSize]byte)
		for {
			n, err = unix.Read(int(fd), buf[:])
			if err != unix.EINTR {
				break
			}
		}
		if err != nil || n == 0 {
			chunkPool.Put(buf)
			buf = nil
		}
		return err != unix.EAGAIN
	})
	if waitErr != nil {
		return nil, 0, waitErr
	}
	return buf, n, err
}

// readNow reads what is there, if anything is, whatever the deadline.
func readNow(rc syscall.RawConn) (buf *[chunkSize]byte, n int) {
	buf = chunkPool.Get().(*[chunkSize]byte)
	err := rc.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf[:]) })
	if err != nil || n <= 0 {
		chunkPool.Put(buf)
		return nil, 0
	}
	return buf, n
}

// exit tells the source that the process has exited.
func (s *source) exit() {
	pending := 0
	if rc, err := s.f.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) {
			if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
				pending = n
			}
		})
	}
	s.owed = s.total.Load() + int64(pending)
	s.until = time.Now().Add(maxLinger)
	s.exited.Store(true)
	s.f.SetReadDeadline(time.Now().Add(maxQuiet))
}

// wait follows the process to its end.
func (p *process) wait() {
	<-p.child.done
	if p.timer != nil && !p.timer.Stop() {
		<-p.expired // what kills the tree ends first
	}
	failed := !p.child.status.Exited() || p.child.status.ExitStatus() != 0
	var detail guestapi.EndDetail
	if failed {
		detail.DiskFull = diskFull(p.cwd)
		detail.ProcessLimit = p.limitHit.Load() || p.g.atProcessLimit(p)
	}
	if p.stdin != nil {
		p.stdin.close()
	}
	for _, s := range p.sources {
		s.exit()
	}
	// A kill that somebody asked for ends first, too: the end that follows
	// says what is left.
	p.kills.Lock()
	p.kills.Unlock() //nolint:staticcheck // waiting is all that is wanted
	for _, s := range p.sources {
		<-s.done
	}
	p.g.describeEnd(p, failed, &detail)
	// In this order: who takes the end finds the process among the ended.
	p.g.procs.end(p)
	p.out.finish(endEvent(p.child, &detail))
}

// expire kills the tree of a process whose time is up.
func (p *process) expire() {
	defer close(p.expired)
	p.timedOut.Store(true)
	p.limitHit.Store(p.g.atProcessLimit(p))
	_ = p.g.killTree(p) // what survives is counted in the end
}

// An input is what a process reads.
type input struct {
	turn chan struct{} // has a value while nobody writes
	f    *os.File
	// quit is closed with the input; it ends the wait for a turn.
	quit   chan struct{}
	shared bool // f is read from, too, and closed by its reader
	once   sync.Once
}

func newInput(f *os.File) *input {
	in := &input{turn: make(chan struct{}, 1), f: f, quit: make(chan struct{})}
	in.turn <- struct{}{}
	return in
}

var errInputClosed = errf(guestapi.CodeFailedPrecondition, "the process's input is closed")

// write writes all of data, in one piece, unless done is closed before.
func (in *input) write(done <-chan struct{}, data []byte) error {
	select {
	case <-in.turn:
	case <-in.quit:
		return errInputClosed
	case <-done:
		return errf(guestapi.CodeCanceled, "the caller left before its input was written")
	}
	defer func() { in.turn <- struct{}{} }()
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-done:
			in.f.SetWriteDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	n, err := in.f.Write(data)
	close(stop)
	<-stopped
	select {
	case <-in.quit:
		if err != nil {
			return errInputClosed
		}
	default:
		in.f.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errf(guestapi.CodeCanceled, "the caller left after %d of %d bytes of input", n, len(data))
	case errors.Is(err, os.ErrClosed):
		return errInputClosed
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO):
		return errf(guestapi.CodeFailedPrecondition, "the process does not read its input any more")
	}
	return errf(guestapi.CodeInternal, "write input: %v", err)
}

// close ends the input; a write under way fails.
func (in *input) close() {
	in.once.Do(func() {
		close(in.quit)
		if in.shared {
			in.f.SetWriteDeadline(time.Unix(1, 0))
		} else {
			in.f.Close()
		}
	})
}

// plumbing is the file descriptors of a process to be.
type plumbing struct {
	owner    *account   // of its pipes; nil is the guest
	child    []int      // its 0, 1, 2
	ours     []*os.File // all that is to be closed if it does not start
	sources  []*source
	stdin    *input
	terminal *os.File
}

func (pl *plumbing) closeChild() {
	for i, fd := range pl.child {
		if !slices.Contains(pl.child[:i], fd) {
			unix.Close(fd)
		}
	}
	pl.child = nil
}

func (pl *plumbing) closeAll() {
	pl.closeChild()
	for _, f := range pl.ours {
		f.Close()
	}
}

// pipe makes a pipe of which one end is the child's, and blocks, and the other
// ours, and does not.
func (pl *plumbing) pipe(childReads bool) (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	theirs, our := fds[1], fds[0]
	if childReads {
		theirs, our = our, theirs
	}
	pl.child = append(pl.child, theirs)
	if pl.owner != nil {
		// Programs open /dev/stdout and its kin anew, as whoever they run as.
		if err := unix.Fchown(theirs, int(pl.owner.uid), int(pl.owner.gid)); err != nil {
			unix.Close(our)
			return nil, err
		}
	}
	if err := unix.SetNonblock(our, true); err != nil {
		unix.Close(our)
		return nil, err
	}
	f := os.NewFile(uintptr(our), "pipe")
	pl.ours = append(pl.ours, f)
	return f, nil
}

// pipes makes the input and output of a process without a terminal.
func pipes(withInput bool, owner *account) (*plumbing, error) {
	pl := &plumbing{owner: owner}
	fail := func(err error) (*plumbing, error) {
		pl.closeAll()
		return nil, exhausted("make pipe", err)
	}
	if withInput {
		w, err := pl.pipe(true)
		if err != nil {
			return fail(err)
		}
		pl.stdin = newInput(w)
	} else {
		null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fail(err)
		}
		pl.child = append(pl.child, null)
	}
	for _, name := range []guestapi.Stream{guestapi.Stdout, guestapi.Stderr} {
		r, err := pl.pipe(false)
		if err != nil {
			return fail(err)
		}
		// A kernel that refuses a larger buffer gives the usual one.
		_, _ = unix.FcntlInt(uintptr(pl.child[len(pl.child)-1]), unix.F_SETPIPE_SZ, pipeSize)
		pl.sources = append(pl.sources, &source{f: r, stream: name, done: make(chan struct{})})
	}
	return pl, nil
}

// exhausted is the error of a system call that lacked a resource.
func exhausted(what string, err error) error {
	code := guestapi.CodeInternal
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN, unix.ENOSPC, unix.EIO} {
		if errors.Is(err, e) {
			code = guestapi.CodeResourceExhausted
		}
	}
	return errf(code, "%s: %v", what, err)
}

// openTerminal makes a terminal for a user's process.
func openTerminal(a *account, size *guestapi.PTYSize) (*plumbing, error) {
	pl := &plumbing{}
	fail := func(what string, err error) (*plumbing, error) {
		pl.closeAll()
		return nil, exhausted(what, err)
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fail("open /dev/ptmx", err)
	}
	pl.terminal = os.NewFile(uintptr(fd), "/dev/ptmx")
	pl.ours = append(pl.ours, pl.terminal)
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock terminal", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return fail("name terminal", err)
	}
	name := "/dev/pts/" + strconv.Itoa(n)
	slave, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("open "+name, err)
	}
	pl.child = []int{slave, slave, slave}
	if int(a.uid) != os.Geteuid() {
		if err := unix.Fchown(slave, int(a.uid), int(a.gid)); err != nil {
			return fail("hand over terminal", err)
		}
	}
	if size != nil {
		if err := setSize(pl.terminal, *size); err != nil {
			pl.closeAll()
			return nil, err
		}
	}
	pl.sources = []*source{{f: pl.terminal, stream: guestapi.Terminal, done: make(chan struct{})}}
	pl.stdin = newInput(pl.terminal)
	pl.stdin.shared = true
	return pl, nil
}

// setSize sets a terminal's size.
func setSize(f *os.File, size guestapi.PTYSize) error {
	const most = 1<<16 - 1
	if size.Cols > most || size.Rows > most {
		return errf(guestapi.CodeInvalidArgument, "a terminal of %d by %d is too large", size.Cols, size.Rows)
	}
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = rc.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size.Rows), Col: uint16(size.Cols)})
	})
	return errors.Join(err, set)
}

// copyBounded copies at most limit bytes.
func copyBounded(w io.Writer, r io.Reader, limit int64) (int64, error) {
	return io.Copy(w, io.LimitReader(r, limit))
}
