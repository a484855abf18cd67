package sentry

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/lisafs"
	"gvisor.dev/gvisor/pkg/marshal/primitive"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/flag"
)

// serveMounts runs in the sentry. It answers the requests of each mount for which
// gVisor would ask a gofer. The flags name the descriptors of the supervisor's
// sockets. serveMounts replaces each with the end of a connection that gVisor then
// uses.
func serveMounts(f *flag.FlagSet) error {
	confs, is := flag.Get(f.Lookup("gofer-mount-confs").Value).(*boot.GoferMountConfFlags)
	if !is {
		return errors.New("gVisor's list of mounts has changed")
	}
	fds := strings.Split(f.Lookup("io-fds").Value.String(), ",")
	for _, conf := range *confs {
		if !conf.ShouldUseLisafs() && !conf.ShouldUseErofs() {
			continue
		}
		if len(fds) == 0 {
			return errors.New("more mounts than were handed over")
		}
		fd, err := strconv.Atoi(fds[0])
		if err != nil {
			return fmt.Errorf("descriptor of a mount: %w", err)
		}
		fds = fds[1:]
		if !conf.ShouldUseLisafs() {
			continue // an image, which the sentry reads directly
		}
		if err := serveMount(fd); err != nil {
			return err
		}
	}
	if len(fds) > 0 {
		return errors.New("more was handed over than is mounted")
	}
	return nil
}

func serveMount(fd int) error {
	from, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	if err := unix.Dup3(pair[0], fd, unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("dup3", err)
	}
	if err := unix.Close(pair[0]); err != nil {
		return os.NewSyscallError("close", err)
	}
	socket, err := unet.NewSocket(pair[1])
	if err != nil {
		return err
	}
	s := &mountServer{from: from, root: -1, tree: -1}
	s.Init(s, lisafs.ServerOpts{})
	handlers := make([]lisafs.RPCHandler, slices.Max(s.SupportedMessages())+1)
	handlers[lisafs.Mount] = s.mount
	handlers[lisafs.OpenAt] = s.openAt
	handlers[lisafs.Walk] = s.walk
	handlers[lisafs.Close] = func(*lisafs.Connection, lisafs.Communicator, uint32) (uint32, error) { return 0, nil }
	handlers[lisafs.FGetXattr] = refuse(unix.ENODATA)
	handlers[lisafs.Connect] = refuse(unix.EPERM)
	handlers[lisafs.ConnectWithCreds] = refuse(unix.EPERM)
	handlers[lisafs.BindAt] = refuse(unix.EPERM) // gVisor then makes a socket of its own
	s.SetHandlers(handlers)
	conn, err := s.CreateConnection(socket, "/", false)
	if err != nil {
		return err
	}
	s.StartConnection(conn)
	return nil
}

// mountServer answers the requests that a sentry which opens files itself still
// sends to a gofer. It runs in the sentry's process, under its seccomp filter. A
// request here can therefore do nothing that the sentry could not do itself.
type mountServer struct {
	lisafs.Server
	from int // the socket that contains the tree
	root int // a directory or a file; -1 until it is mounted
	tree int // stays open, so that the host keeps the mount
}

// The file IDs in the protocol. Only the root and the opened file are
// distinguished; all files that a walk finds share one ID.
const (
	rootFile lisafs.FDID = 1 + iota
	openedFile
	walkedFile
)

// SupportedMessages implements [lisafs.ServerImpl].
func (s *mountServer) SupportedMessages() []lisafs.MID {
	return []lisafs.MID{
		lisafs.Mount, lisafs.OpenAt, lisafs.Walk, lisafs.Close, lisafs.FGetXattr,
		lisafs.Connect, lisafs.ConnectWithCreds, lisafs.BindAt,
	}
}

// MaxMessageSize implements [lisafs.ServerImpl].
func (s *mountServer) MaxMessageSize() uint32 { return lisafs.MaxMessageSize() }

// Mount implements [lisafs.ServerImpl]. gVisor calls [mountServer.mount] instead.
func (s *mountServer) Mount(*lisafs.Connection, *lisafs.Node) (*lisafs.ControlFD, linux.Statx, int, error) {
	return nil, linux.Statx{}, -1, unix.EOPNOTSUPP
}

// mount sends the root to the sentry.
func (s *mountServer) mount(_ *lisafs.Connection, to lisafs.Communicator, _ uint32) (uint32, error) {
	if s.root < 0 {
		var err error
		if s.root, s.tree, err = receiveTree(s.from); err != nil {
			return 0, err
		}
	}
	fd, err := unix.Dup(s.root)
	if err != nil {
		return 0, err
	}
	to.DonateFD(fd)
	// The sentry reads the attributes of the file itself.
	resp := lisafs.MountResp{
		Root:           lisafs.Inode{ControlFD: rootFile},
		SupportedMs:    s.SupportedMessages(),
		MaxMessageSize: primitive.Uint32(s.MaxMessageSize()),
	}
	size := uint32(resp.SizeBytes())
	resp.MarshalBytes(to.PayloadBuf(size))
	return size, nil
}

// openAt opens the root, for which the sentry has no parent directory.
func (s *mountServer) openAt(_ *lisafs.Connection, to lisafs.Communicator, size uint32) (uint32, error) {
	var req lisafs.OpenAtReq
	if _, whole := req.CheckedUnmarshal(to.PayloadBuf(size)); !whole {
		return 0, unix.EIO
	}
	if req.FD != rootFile || s.root < 0 {
		return 0, unix.EPERM
	}
	if req.Flags&(unix.O_ACCMODE|unix.O_TRUNC) != unix.O_RDONLY {
		return 0, unix.EROFS // directories are not writable, and files are only read
	}
	fd, err := unix.Openat(s.root, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) {
		fd, err = unix.Dup(s.root) // a file is read with explicit offsets
	}
	if err != nil {
		return 0, err
	}
	to.DonateFD(fd)
	resp := lisafs.OpenAtResp{OpenFD: openedFile}
	resp.MarshalUnsafe(to.PayloadBuf(uint32(resp.SizeBytes())))
	return uint32(resp.SizeBytes()), nil
}

// walk reports every file as present. The sentry has found the files itself. It
// requests their IDs only for operations that are then refused: connections to
// sockets, and attributes of links.
func (s *mountServer) walk(_ *lisafs.Connection, to lisafs.Communicator, size uint32) (uint32, error) {
	var req lisafs.WalkReq
	if _, whole := req.CheckedUnmarshal(to.PayloadBuf(size)); !whole {
		return 0, unix.EIO
	}
	resp := lisafs.WalkResp{Status: lisafs.WalkSuccess, Inodes: make([]lisafs.Inode, len(req.Path))}
	for i := range resp.Inodes {
		resp.Inodes[i].ControlFD = walkedFile
	}
	answer := uint32(resp.SizeBytes())
	resp.MarshalBytes(to.PayloadBuf(answer))
	return answer, nil
}

// refuse returns a handler that answers with an error.
func refuse(errno unix.Errno) lisafs.RPCHandler {
	return func(*lisafs.Connection, lisafs.Communicator, uint32) (uint32, error) { return 0, errno }
}

// receiveTree receives the descriptors that [rootfs.Tree.HandOver] has sent to a
// socket, and closes the socket. It uses only system calls that the sentry's
// seccomp filter allows.
func receiveTree(socket int) (root, tree int, err error) {
	defer func() { err = errors.Join(err, os.NewSyscallError("close", unix.Close(socket))) }()
	oob := make([]byte, unix.CmsgSpace(2*4))
	n, oobn, _, _, err := unix.Recvmsg(socket, make([]byte, 1), oob, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
	if err == nil && n != 1 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return -1, -1, fmt.Errorf("receive tree: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return -1, -1, errors.Join(errors.New("receive tree: the message has no tree"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 2 {
		return -1, -1, errors.Join(errors.New("receive tree: the message has no tree"), err)
	}
	return fds[0], fds[1], nil
}
