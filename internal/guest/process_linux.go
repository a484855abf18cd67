package guest

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// maxQuiet is how long the output of an ended process may be silent before
	// it counts as complete. A descendant may hold the output open.
	maxQuiet = 100 * time.Millisecond
	// maxLinger bounds how long such a descendant can delay the end by writing
	// without pause.
	maxLinger = time.Second
	// pipeSize is the size of an output pipe after a read of at least muchOutput
	// bytes. It lets the process write on while the guest sends its output.
	// maxPending is at least the capacity of a pipe or terminal.
	pipeSize   = 256 << 10
	muchOutput = 32 << 10
	maxPending = 1 << 20
)

// A process was started for a caller, and is tracked until a caller took its
// end.
type process struct {
	g        *Guest
	id       uint64 // never reused, unlike pids
	child    *child
	began    uint64 // in clock ticks; a process that began earlier is not its descendant
	tag      string
	config   guestapi.ProcessConfig
	account  *account.Account
	cwd      string
	keep     bool
	out      *output
	sources  []*source
	terminal *os.File // the master side, nil without a terminal
	stdin    *input   // nil without input
	timer    *time.Timer
	expired  chan struct{} // closed when expire has returned

	kills    sync.Mutex // held while the tree is being killed
	timedOut atomic.Bool
	limitHit atomic.Bool // the process limit was reached at the kill
}

// A source is one output stream of a process.
type source struct {
	p      *process
	from   *readEnd
	stream guestapi.Stream
	done   chan struct{} // closed when all output that counts was read
	// master is the master side of the stream's terminal. It is closed when no
	// process has the terminal open.
	master *os.File
}

// read carries output until its end. After the process has exited, it reads the
// rest of the process's output and waits until descendants are quiet. Their
// later output is read and dropped, so that they do not block.
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

// carry delivers the output that counts. It reports whether the stream has
// ended.
func (s *source) carry() bool {
	defer close(s.done)
	exited := s.p.child.done // nil after its close was seen
	var (
		until   time.Time // when lingering ends
		owed    int       // upper bound of the process's unread output
		quiet   *time.Timer
		after   <-chan time.Time // the channel of quiet
		expired bool
		grown   bool      // the pipe has pipeSize
		last    time.Time // time of the last read
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
			// Try one more read: on a busy machine there may be output that is
			// not seen yet.
			expired = !ready && exited == nil
			continue
		}
		if buf == nil { // nil without EAGAIN is the end; a terminal ends with EIO
			return true
		}
		if n >= muchOutput && !grown {
			// If the OS kernel refuses a larger buffer, the usual one stays.
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

// wait reports the end of the process.
func (p *process) wait() {
	<-p.child.done
	if p.timer != nil && !p.timer.Stop() {
		<-p.expired // the kill of the tree must finish first
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
	// Wait for a kill that a caller asked for, as well: the end counts the
	// survivors.
	p.kills.Lock()
	p.kills.Unlock() //nolint:staticcheck // waiting is all that is wanted
	for _, s := range p.sources {
		<-s.done
	}
	p.g.describeEnd(p, failed, &detail)
	// The order matters: a caller that takes the end must find p among the
	// ended.
	p.g.procs.end(p)
	p.out.finish(endEvent(p.child, &detail))
}

// expire kills the tree of a process at its timeout.
func (p *process) expire() {
	defer close(p.expired)
	p.timedOut.Store(true)
	p.limitHit.Store(p.g.atProcessLimit())
	_ = p.g.killTree(p) // the end counts the survivors
}

// An input is the input of a process.
type input struct {
	turn chan struct{} // has a value while no caller writes
	f    *os.File
	// quit is closed with the input, and ends the wait for a turn.
	quit   chan struct{}
	shared bool // f is a terminal, which its reader closes
	once   sync.Once
}

func newInput(f *os.File) *input {
	in := &input{turn: make(chan struct{}, 1), f: f, quit: make(chan struct{})}
	in.turn <- struct{}{}
	return in
}

var errInputClosed = rpc.Errorf(guestapi.CodeFailedPrecondition, "the process's input is closed")

// write writes all of data in one piece, unless done is closed first.
func (in *input) write(done <-chan struct{}, data []byte) error {
	select {
	case <-in.turn:
	case <-in.quit:
		return errInputClosed
	case <-done:
		return rpc.Errorf(guestapi.CodeCanceled, "the caller left before its input was written")
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
		return rpc.Errorf(guestapi.CodeCanceled, "the caller left after %d of %d bytes of input", n, len(data))
	case errors.Is(err, os.ErrClosed):
		return errInputClosed
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO):
		return rpc.Errorf(guestapi.CodeFailedPrecondition, "the process does not read its input any more")
	}
	return rpc.Errorf(guestapi.CodeInternal, "write input: %v", err)
}

// close closes the input; a write under way fails.
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

// plumbing holds the file descriptors of a new process.
type plumbing struct {
	owner    *account.Account // owner of the pipes; nil is the guest
	child    []int            // its descriptors, in order from 0
	ours     []*os.File       // files to close if the process does not start
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

// rawPipe makes a pipe. The child's end blocks; the guest's end, which rawPipe
// returns, does not.
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
		// Programs reopen /dev/stdout and the like as their own user.
		if err := unix.Fchown(theirs, int(pl.owner.UID), int(pl.owner.GID)); err != nil {
			unix.Close(our)
			return -1, err
		}
	}
	// A new pipe has no other status flags, so overwriting them is safe.
	if _, err := unix.FcntlInt(uintptr(our), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		unix.Close(our)
		return -1, err
	}
	return our, nil
}

// pipe is rawPipe with the guest's end as an os.File.
func (pl *plumbing) pipe(childReads bool) (*os.File, error) {
	our, err := pl.rawPipe(childReads)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(our), "pipe")
	pl.ours = append(pl.ours, f)
	return f, nil
}

// source makes a source of the guest's end of a stream. It takes fd over.
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
func (g *Guest) pipes(withInput bool, owner *account.Account) (*plumbing, error) {
	pl := &plumbing{owner: owner}
	fail := func(err error) (*plumbing, error) {
		pl.closeAll()
		return nil, rpc.Exhausted("make pipe", err)
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

// openTerminal makes a terminal for a user's process.
func (g *Guest) openTerminal(a *account.Account, size *guestapi.PTYSize) (*plumbing, error) {
	pl := &plumbing{}
	fail := func(what string, err error) (*plumbing, error) {
		pl.closeAll()
		return nil, rpc.Exhausted(what, err)
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
	if int(a.UID) != os.Geteuid() {
		if err := unix.Fchown(slave, int(a.UID), int(a.GID)); err != nil {
			return fail("hand over terminal", err)
		}
	}
	if size != nil {
		if err := setSize(pl.terminal, *size); err != nil {
			pl.closeAll()
			return nil, err
		}
	}
	// A second descriptor for reading, as the first is written as an os.File.
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

// setSize sets the size of a terminal.
func setSize(f *os.File, size guestapi.PTYSize) error {
	const most = 1<<16 - 1
	if size.Cols > most || size.Rows > most {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "a terminal of %d by %d is too large", size.Cols, size.Rows)
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
