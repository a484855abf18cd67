package process

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// An epoller waits for readable descriptors. The poller of the Go runtime wakes
// a thread at each write to a pipe, even if no goroutine waits. That interrupts
// a program at each of its small writes. An epoller wakes only for a descriptor
// that is waited for, and then once.
type epoller struct {
	epoll int

	mu   sync.Mutex
	last int32
	open map[int32]*readEnd // guarded by mu
}

// newEpoller returns an epoller that runs until the process ends.
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
			// Only a descriptor that was closed by mistake can cause that.
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

// A readEnd is a nonblocking descriptor for one reader. The reader waits before
// its first read.
type readEnd struct {
	p     *epoller
	fd    int
	key   int32
	ready chan struct{} // has a value when the descriptor became readable
	// armed is set if the epoller already waits for the descriptor.
	armed bool
	// shared is set if another descriptor of the same file is open.
	shared bool
}

// add takes fd over, unless it returns an error.
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

// event is the epoll event for one readiness of e.
func (e *readEnd) event() *unix.EpollEvent {
	return &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: e.key}
}

// close closes the descriptor.
func (e *readEnd) close() {
	e.p.mu.Lock()
	delete(e.p.open, e.key)
	e.p.mu.Unlock()
	if e.shared { // otherwise close removes it
		_ = unix.EpollCtl(e.p.epoll, unix.EPOLL_CTL_DEL, e.fd, nil)
	}
	unix.Close(e.fd)
}

// chunk reads once into a buffer of the pool. It returns no buffer at the end,
// nor with an error, which is EAGAIN if there is nothing to read now.
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

// wait waits until e may be readable, or until over or after has a value. It
// returns true in the first case. It holds no thread.
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
