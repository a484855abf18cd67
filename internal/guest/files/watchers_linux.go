package files

import (
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// newWatch begins to watch. The caller closes the watch.
func (s *Server) newWatch(r *http.Request, in *guestapi.WatchDirRequest) (*watch, string, error) {
	c, root, err := s.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, "", err
	}
	if err := s.watches.reserve(); err != nil {
		return nil, "", err
	}
	// As the user: inotify limits instances for each user. If the box shares the
	// machine's users, root's limit is shared with the machine's services.
	fd := -1
	err = s.accounts.As(c.Account, func() (err error) {
		fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		return err
	})
	if err != nil {
		s.watches.release()
		if err == unix.EMFILE {
			return nil, "", rpc.Errorf(guestapi.CodeResourceExhausted, "the limit of inotify instances (fs.inotify.max_user_instances) is used up")
		}
		return nil, "", rpc.Exhausted("make watch", err)
	}
	w := &watch{
		all: s.watches, accounts: s.accounts, account: c.Account, recursive: in.Recursive, entries: in.IncludeEntry,
		f:    os.NewFile(uintptr(fd), "inotify"),
		dirs: make(map[int32]string),
		buf:  make([]byte, 0, 64<<10),
	}
	err = s.as(c, func(owner *account.Account) (err error) {
		if owner != nil {
			if w.account, err = s.accounts.Find(account.RootName); err != nil {
				return err
			}
		}
		if !in.AllowNetworkMounts && !rpc.Extended(r) {
			if err := checkLocal(root); err != nil {
				return err
			}
		}
		return w.add(root, "", nil)
	})
	if err != nil {
		w.close()
		return nil, "", err
	}
	return w, root, nil
}

// checkLocal returns an error if a directory is on a file system of another
// machine, where changes made there have no events.
func checkLocal(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return rpc.FileError(err, dir)
	}
	if isNetwork(uint32(st.Type)) {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: is on a network file system, which reports not all changes; allow network mounts to watch it all the same", dir)
	}
	return nil
}

// isNetwork reports whether a type of file systems is on a network, or is FUSE,
// which often is.
func isNetwork(magic uint32) bool {
	switch magic {
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return true
	}
	return false
}

// watchDir streams changes until the caller leaves.
func (s *Server) watchDir(r *http.Request, in *guestapi.WatchDirRequest, out *rpc.Stream) error {
	w, root, err := s.newWatch(r, in)
	if err != nil {
		return err
	}
	defer w.close()
	if err := out.Send(&guestapi.WatchMessage{Start: &struct{}{}}); err != nil {
		return err
	}
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-r.Context().Done():
			w.f.Close()
		case <-s.watches.done:
			w.f.Close()
		case <-stop:
		}
	}()
	defer func() { close(stop); <-stopped }()
	interval := rpc.Keepalive(r)
	for {
		w.f.SetReadDeadline(time.Now().Add(interval))
		events, err := w.next(root)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := out.Send(&guestapi.WatchMessage{Keepalive: &guestapi.KeepaliveEvent{}}); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for i := range events {
			if !rpc.Extended(r) {
				events[i].RawName = nil
			}
			if err := out.Send(&guestapi.WatchMessage{Filesystem: &events[i]}); err != nil {
				return err
			}
		}
	}
}

func (s *Server) createWatcher(r *http.Request, in *guestapi.WatchDirRequest) (*guestapi.CreateWatcherResponse, error) {
	w, root, err := s.newWatch(r, in)
	if err != nil {
		return nil, err
	}
	rc, err := w.f.SyscallConn()
	if err != nil {
		w.close()
		return nil, err
	}
	p := &poller{w: w, root: root}
	id := rand.Text()
	s.watches.mu.Lock()
	s.watches.pollers[id] = p
	s.watches.mu.Unlock()
	go p.run(rc)
	return &guestapi.CreateWatcherResponse{WatcherID: id}, nil
}

func (s *Server) getWatcherEvents(r *http.Request, in *guestapi.WatcherRequest) (*guestapi.GetWatcherEventsResponse, error) {
	p, err := s.watches.find(in.WatcherID)
	if err != nil {
		return nil, err
	}
	// The kernel has all that happened before this request. The goroutine that
	// collects it may not have run since. A closed watch has nothing more.
	if rc, err := p.w.f.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { p.collect(fd) })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.events) == 0 && p.err != nil {
		return nil, p.err
	}
	out := &guestapi.GetWatcherEventsResponse{Events: p.events}
	p.events, p.bytes = nil, 0
	for i := range out.Events {
		if !rpc.Extended(r) {
			out.Events[i].RawName = nil
		}
	}
	if out.Events == nil {
		out.Events = []guestapi.FilesystemEvent{}
	}
	return out, nil
}

func (s *Server) removeWatcher(_ *http.Request, in *guestapi.WatcherRequest) (*struct{}, error) {
	p, err := s.watches.find(in.WatcherID)
	if err != nil {
		return nil, err
	}
	s.watches.mu.Lock()
	_, ours := s.watches.pollers[in.WatcherID]
	delete(s.watches.pollers, in.WatcherID)
	s.watches.mu.Unlock()
	if ours {
		p.w.close()
	}
	return &struct{}{}, nil
}
