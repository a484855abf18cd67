package guest

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// An epoller waits for descriptors that have something to read. Those of the Go
// runtime wake a thread at each write to a pipe, whether or not anybody waits
// for it; a program that writes much in small pieces is interrupted at every
// one. Here a descriptor wakes nobody until it is waited for, and then once.
type epoller struct {
	epoll int

	mu   sync.Mutex
	last int32
	open map[int32]*readEnd // guarded by mu
}

// newEpoller returns an epoller that works until the process ends.
func newEpoller() (*epoller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p := &epoller{epoll: fd, open: make(map[int32]*readEnd)}
	go p.run()
	return p, nil
}

func (p *epoller) run() {
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			// Only a descriptor that is not ours any more can do that.
			panic("guest: poller: " + err.Error())
		}
		p.mu.Lock()
		for _, ev := range events[:max(n, 0)] {
			if e := p.open[ev.Fd]; e != nil {
				select {
				case e.ready <- struct{}{}:
				default:
				}
			}
		}
		p.mu.Unlock()
	}
}

// A readEnd is a descriptor that does not block. It is for one reader, who
// begins by waiting.
type readEnd struct {
	p     *epoller
	fd    int
	key   int32
	ready chan struct{} // has a value when there was something
	// armed says that the next wait has begun already.
	armed bool
	// shared says that another descriptor of the same file is open.
	shared bool
}

// add takes fd over.
func (p *epoller) add(fd int) (*readEnd, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	e := &readEnd{p: p, fd: fd, key: p.last, ready: make(chan struct{}, 1), armed: true}
	p.open[e.key] = e
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, e.event()); err != nil {
		delete(p.open, e.key)
		return nil, err
	}
	return e, nil
}

// event is something to read, once.
func (e *readEnd) event() *unix.EpollEvent {
	return &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: e.key}
}

// close closes the descriptor.
func (e *readEnd) close() {
	e.p.mu.Lock()
	delete(e.p.open, e.key)
	e.p.mu.Unlock()
	if e.shared { // else closing does it
		_ = unix.EpollCtl(e.p.epoll, unix.EPOLL_CTL_DEL, e.fd, nil)
	}
	unix.Close(e.fd)
}

// chunk reads what is there into a buffer of the pool. It returns no buffer
// with an error (EAGAIN if there is nothing now) and at the end.
func (e *readEnd) chunk() (buf *[chunkSize]byte, n int, err error) {
	buf = chunkPool.Get().(*[chunkSize]byte)
	for {
		n, err = unix.Read(e.fd, buf[:])
		if err != unix.EINTR {
			break
		}
	}
	if err != nil || n == 0 {
		chunkPool.Put(buf)
		return nil, 0, err
	}
	return buf, n, nil
}

// wait waits until there may be something to read, or until over or after has
// a value; it reports whether it was not the latter two. It holds no thread.
func (e *readEnd) wait(over <-chan struct{}, after <-chan time.Time) (bool, error) {
	if !e.armed {
		if err := unix.EpollCtl(e.p.epoll, unix.EPOLL_CTL_MOD, e.fd, e.event()); err != nil {
			return false, err
		}
	}
	e.armed = false
	select {
	case <-e.ready:
		return true, nil
	case <-over:
	case <-after:
	}
	return false, nil
}
