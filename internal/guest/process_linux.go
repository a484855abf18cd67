package guest

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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
	// pipeSize lets a process write on while its output is carried, once it
	// has written muchOutput at once. maxPending is at least what a pipe or
	// terminal can hold.
	pipeSize   = 256 << 10
	muchOutput = 32 << 10
	maxPending = 1 << 20
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
	from   *readEnd
	stream guestapi.Stream
	done   chan struct{} // closed when what counts was read
	// master is the terminal that the stream is of; it goes when nobody has
	// the terminal open any more.
	master *os.File
}

// read carries output until its end. When the process has exited, it goes on
// until all that the process wrote is read and descendants are quiet; what
// they write later is dropped, but they can write it.
func (s *source) read() {
	defer s.close()
	if s.carry() {
		return
	}
	for {
		buf, _, err := s.from.chunk()
		switch {
		case err == unix.EAGAIN:
			if _, err := s.from.wait(nil, nil); err != nil {
				return
			}
		case buf == nil:
			return
		default:
			chunkPool.Put(buf)
		}
	}
}

// carry hands on what counts, and reports whether the stream has ended.
func (s *source) carry() bool {
	defer close(s.done)
	exited := s.p.child.done // nil when its news has been taken, as below
	var (
		until   time.Time // when lingering ends
		owed    int       // at most so much is left of what the process wrote
		quiet   *time.Timer
		after   <-chan time.Time // quiet's
		expired bool
		grown   bool      // the pipe
		last    time.Time // of the latest read
	)
	if _, err := s.from.wait(exited, nil); err != nil {
		return true
	}
	for {
		select {
		case <-exited:
			exited, owed, until = nil, maxPending, time.Now().Add(maxLinger)
			quiet = time.NewTimer(maxQuiet)
			defer quiet.Stop()
			after = quiet.C
		default:
		}
		buf, n, err := s.from.chunk()
		if err == unix.EAGAIN {
			if exited == nil {
				owed = 0
				if expired {
					return false
				}
			}
			ready, err := s.from.wait(exited, after)
			if err != nil {
				return true
			}
			// Not trusted yet: on a busy machine there may be something, too.
			expired = !ready && exited == nil
			continue
		}
		if buf == nil { // a terminal ends with EIO
			return true
		}
		if n >= muchOutput && !grown {
			// A kernel that refuses a larger buffer leaves the usual one.
			_, _ = unix.FcntlInt(uintptr(s.from.fd), unix.F_SETPIPE_SZ, pipeSize)
			grown = true
		}
		s.p.out.add(s.stream, buf, n)
		now := time.Now()
		if exited == nil {
			owed -= n
			if owed <= 0 && now.After(until) {
				return false
			}
			expired = false
			quiet.Reset(maxQuiet)
		} else if n < floodRead && now.Sub(last) < floodGap {
			time.Sleep(floodPause)
		}
		last = now
	}
}

func (s *source) close() {
	s.from.close()
	if s.master != nil {
		s.master.Close()
	}
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
		detail.ProcessLimit = p.limitHit.Load() || p.g.atProcessLimit()
	}
	if p.stdin != nil {
		p.stdin.close()
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
	p.limitHit.Store(p.g.atProcessLimit())
	_ = p.g.killTree(p) // what survives is counted in the end
}

// An input is what a process reads.
type input struct {
	turn chan struct{} // has a value while nobody writes
	f    *os.File
	// quit is closed with the input; it ends the wait for a turn.
	quit   chan struct{}
	shared bool // f is a terminal, which goes when its reader says
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
	ours     []*os.File // all files that are to be closed if it does not start
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
	for _, s := range pl.sources {
		s.from.close()
	}
}

// rawPipe makes a pipe of which one end is the child's, and blocks, and the
// other ours, and does not.
func (pl *plumbing) rawPipe(childReads bool) (int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, err
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
			return -1, err
		}
	}
	// Nothing else can be set for a new pipe that would have to stay.
	if _, err := unix.FcntlInt(uintptr(our), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		unix.Close(our)
		return -1, err
	}
	return our, nil
}

// pipe is rawPipe for an end that is a file.
func (pl *plumbing) pipe(childReads bool) (*os.File, error) {
	our, err := pl.rawPipe(childReads)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(our), "pipe")
	pl.ours = append(pl.ours, f)
	return f, nil
}

// source makes our end of a stream, which it takes over, a source.
func (pl *plumbing) source(p *epoller, fd int, stream guestapi.Stream) error {
	from, err := p.add(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	pl.sources = append(pl.sources, &source{from: from, stream: stream, done: make(chan struct{})})
	return nil
}

// pipes makes the input and output of a process without a terminal.
func (g *Guest) pipes(withInput bool, owner *account) (*plumbing, error) {
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
		r, err := pl.rawPipe(false)
		if err != nil {
			return fail(err)
		}
		if err := pl.source(g.epoller, r, name); err != nil {
			return fail(err)
		}
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
func (g *Guest) openTerminal(a *account, size *guestapi.PTYSize) (*plumbing, error) {
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
	// Its own descriptor to read, so that the terminal is written as a file.
	reader, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fail("open terminal again", err)
	}
	if err := pl.source(g.epoller, reader, guestapi.Terminal); err != nil {
		return fail("watch terminal", err)
	}
	pl.sources[0].from.shared = true
	pl.sources[0].master = pl.terminal
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
