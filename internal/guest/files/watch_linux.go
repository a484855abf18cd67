package files

import (
	"encoding/binary"
	"errors"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// MaxWatches bounds the open watches, streamed and polled.
	MaxWatches = 256
	// maxWatchDirs bounds the directories of one recursive watch.
	maxWatchDirs = 8192
	// MaxWatchEvents bounds the events of a polled watch between two polls.
	MaxWatchEvents = 10_000
	// maxWatchBytes bounds what these events take in memory, about.
	maxWatchBytes = 16 << 20
)

// A watch reports changes in a directory, and below it if recursive.
type watch struct {
	all       *watches // it counts in these
	accounts  *account.Accounts
	account   *account.Account
	recursive bool
	entries   bool     // report the entries of files
	f         *os.File // the inotify instance

	dirs map[int32]string // by inotify watch descriptor, relative to the root
	// buf holds the raw inotify events.
	buf     []byte
	pending []guestapi.FilesystemEvent
}

const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

func (w *watch) close() {
	w.f.Close()
	w.all.release()
}

// add watches the directory dir below root and, if the watch is recursive, all
// directories below it. It calls found with the entries of a new directory.
// Those made before the watch began have no event.
func (w *watch) add(root, dir string, found func(name string)) error {
	full := path.Join(root, dir)
	if len(w.dirs) >= maxWatchDirs {
		return rpc.Errorf(guestapi.CodeResourceExhausted, "more than %d directories to watch", maxWatchDirs)
	}
	var wd int
	var err error
	rc, err := w.f.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := rc.Control(func(fd uintptr) {
		flags := uint32(watchMask)
		if dir != "" {
			flags |= unix.IN_DONT_FOLLOW
		}
		wd, err = unix.InotifyAddWatch(int(fd), full, flags)
	})
	if err = errors.Join(ctlErr, err); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			return rpc.Errorf(guestapi.CodeResourceExhausted, "the limit of inotify watches (fs.inotify.max_user_watches) is used up")
		}
		return rpc.FileError(err, full)
	}
	w.dirs[int32(wd)] = dir
	if !w.recursive && found == nil {
		return nil
	}
	entries, err := os.ReadDir(full)
	if err != nil {
		return rpc.FileError(err, full)
	}
	for _, e := range entries {
		if isTempName(e.Name()) {
			continue
		}
		name := path.Join(dir, e.Name())
		if found != nil {
			found(name)
		}
		if !e.IsDir() || !w.recursive {
			continue
		}
		if err := w.add(root, name, found); err != nil && !passable(err) {
			return err
		}
	}
	return nil
}

// passable reports whether to skip a directory that cannot be watched: it
// vanished, or the user may not read it.
func passable(err error) bool {
	code := rpc.Wire(err).Code
	return code == guestapi.CodeNotFound || code == guestapi.CodePermissionDenied || code == guestapi.CodeInvalidArgument
}

// errStopped is the error of a watch that was closed.
var errStopped = rpc.Errorf(guestapi.CodeCanceled, "the watch was stopped")

// next returns the next changes. It waits for some until the deadline of w.f.
func (w *watch) next(root string) ([]guestapi.FilesystemEvent, error) {
	for {
		n, err := w.f.Read(w.buf[:cap(w.buf)])
		if errors.Is(err, os.ErrClosed) {
			return nil, errStopped
		}
		if err != nil {
			return nil, err
		}
		events, err := w.changes(root, w.buf[:n])
		if err != nil || len(events) > 0 {
			return events, err
		}
	}
}

// changes returns the changes that raw inotify events tell of.
func (w *watch) changes(root string, raw []byte) ([]guestapi.FilesystemEvent, error) {
	w.pending = nil
	if err := w.parse(root, raw); err != nil {
		return nil, err
	}
	return w.pending, w.describe(root)
}

// parse decodes inotify events.
func (w *watch) parse(root string, b []byte) error {
	for len(b) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint32(b[4:])
		length := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if length > len(b) {
			return rpc.Errorf(guestapi.CodeInternal, "bad inotify event")
		}
		name := strings.TrimRight(string(b[:length]), "\x00")
		b = b[length:]
		if err := w.event(root, wd, mask, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) event(root string, wd int32, mask uint32, name string) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return rpc.Errorf(guestapi.CodeResourceExhausted, "changes came faster than they were read, and some are lost")
	}
	dir, known := w.dirs[wd]
	if !known {
		return nil
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(w.dirs, wd)
		return nil
	}
	if mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0 {
		if dir == "" {
			return rpc.Errorf(guestapi.CodeNotFound, "%s: was removed or moved", root)
		}
		return nil // the watch of its parent reports it
	}
	if name == "" {
		return nil // of the watched directory itself: its parent's watch reports it
	}
	if isTempName(name) {
		return nil
	}
	rel := path.Join(dir, name)
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.report(rel, guestapi.EventCreate)
		if mask&unix.IN_ISDIR != 0 && w.recursive {
			err := w.accounts.As(w.account, func() error {
				return w.add(root, rel, func(found string) { w.report(found, guestapi.EventCreate) })
			})
			if err != nil && !passable(err) {
				return err
			}
		}
	case mask&unix.IN_MOVED_FROM != 0:
		w.report(rel, guestapi.EventRename)
		if mask&unix.IN_ISDIR != 0 {
			w.forget(rel)
		}
	case mask&unix.IN_DELETE != 0:
		w.report(rel, guestapi.EventRemove)
	case mask&unix.IN_MODIFY != 0:
		w.report(rel, guestapi.EventWrite)
	case mask&unix.IN_ATTRIB != 0:
		w.report(rel, guestapi.EventChmod)
	}
	return nil
}

// forget stops watching a directory that was moved away, and all below it.
func (w *watch) forget(dir string) {
	rc, err := w.f.SyscallConn()
	if err != nil {
		return
	}
	for wd, d := range w.dirs {
		if d == dir || strings.HasPrefix(d, dir+"/") {
			delete(w.dirs, wd)
			_ = rc.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) })
		}
	}
}

func (w *watch) report(name string, what guestapi.EventType) {
	ev := guestapi.FilesystemEvent{Name: name, Type: what}
	if !utf8.ValidString(name) {
		ev.RawName = []byte(name)
		ev.Name = strings.ToValidUTF8(name, "\uFFFD")
	}
	w.pending = append(w.pending, ev)
}

// describe adds the entries of files to the pending events, unless a file has
// been removed or renamed: another file may have its name by now.
func (w *watch) describe(root string) error {
	if !w.entries {
		return nil
	}
	return w.accounts.As(w.account, func() error {
		var d describer
		for i := range w.pending {
			ev := &w.pending[i]
			if ev.Type == guestapi.EventRemove || ev.Type == guestapi.EventRename {
				continue
			}
			name := ev.Name
			if ev.RawName != nil {
				name = string(ev.RawName)
			}
			if e, err := d.entry(path.Join(root, name)); err == nil { // it may have vanished
				ev.Entry = &e
			}
		}
		return nil
	})
}

// watches holds the polled watches and counts all watches.
type watches struct {
	done chan struct{} // closed when the guest ends

	mu      sync.Mutex
	count   int
	pollers map[string]*poller
}

func newWatches() *watches {
	return &watches{done: make(chan struct{}), pollers: make(map[string]*poller)}
}

func (ws *watches) reserve() error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count >= MaxWatches {
		return rpc.Errorf(guestapi.CodeResourceExhausted, "%d watches are open already", ws.count)
	}
	ws.count++
	return nil
}

func (ws *watches) release() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.count--
}

func (ws *watches) close() {
	close(ws.done)
	ws.mu.Lock()
	all := ws.pollers
	ws.pollers = make(map[string]*poller)
	ws.mu.Unlock()
	for _, p := range all {
		p.w.close()
	}
}

func (ws *watches) find(id string) (*poller, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if p := ws.pollers[id]; p != nil {
		return p, nil
	}
	return nil, rpc.Errorf(guestapi.CodeNotFound, "no watcher %q", id)
}

// A poller is a watch that a caller polls.
type poller struct {
	w    *watch
	root string

	mu     sync.Mutex // also of w, but for its file
	events []guestapi.FilesystemEvent
	bytes  int   // of the events
	err    error // why no more events follow
}

// run collects changes as they happen, until the watch ends.
func (p *poller) run(rc syscall.RawConn) {
	for {
		ended := false
		err := rc.Read(func(fd uintptr) (some bool) {
			some, ended = p.collect(fd)
			return some || ended
		})
		if err != nil || ended {
			return // nobody asks a closed watch
		}
	}
}

// collect takes the changes that have happened, without waiting for others. It
// reports whether there were events, and whether the watch has ended.
func (p *poller) collect(fd uintptr) (some, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A program may go on with its changes, so only what has happened now counts.
	left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ) // which is FIONREAD
	if err != nil && p.err == nil {
		p.err = rpc.FileError(err, p.root)
	}
	for p.err == nil && left > 0 {
		n, err := unix.Read(int(fd), p.w.buf[:cap(p.w.buf)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			p.err = rpc.FileError(err, p.root)
		default:
			some = true
			left -= n
			p.keep(p.w.changes(p.root, p.w.buf[:n]))
		}
	}
	return some, p.err != nil
}

// keep keeps events until the caller asks, or else why there are no more.
func (p *poller) keep(events []guestapi.FilesystemEvent, err error) {
	size := 0
	for i := range events {
		size += len(events[i].Name)
		if e := events[i].Entry; e != nil {
			size += weight(e)
		}
	}
	if err == nil && (len(p.events)+len(events) > MaxWatchEvents || p.bytes+size > maxWatchBytes) {
		err = rpc.Errorf(guestapi.CodeResourceExhausted, "more than %d changes, or %d bytes of them, between two calls, and the rest is lost", MaxWatchEvents, maxWatchBytes)
	}
	if err != nil {
		p.err = err
		return
	}
	p.events = append(p.events, events...)
	p.bytes += size
}
