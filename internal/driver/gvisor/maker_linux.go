package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// makerFD is the descriptor of a maker's connection to its driver.
const makerFD = 3

// makerFDs returns the descriptors that a maker with these arguments receives: the
// connection to its driver, and a tree for each argument from the fourth on. The
// first tree is the guest.
func makerFDs(args []string) map[int]bool {
	fds := map[int]bool{makerFD: true}
	for i := range len(args) - 3 {
		fds[makerFD+1+i] = true
	}
	return fds
}

// maker makes boxes for one driver, in a process of its own.
type maker struct {
	dir   string // the directory of all state, shared with other makers
	guest string
	null  *os.File            // the standard streams of boxes
	cgs   *cgroup.Hierarchies // nil if this process can make none

	// The image "host", and what is at rootfs.GuestDir; made when first needed.
	hostRoot, hostGuest func() (*rootfs.Tree, error)
	// For boxes with users of their own, if there are any: what the first is, and
	// the same two.
	firstUser           int
	userRoot, userGuest func() (*rootfs.Tree, error)
	filter              sentry.Filter
	fresh               sync.Once // for keepFresh

	mu    sync.Mutex
	boxes map[string]*madeBox // made or attached here
}

// makerMain is the maker's main function. It returns the exit status.
func makerMain(args []string) int {
	// The maker logs to the server, which may die first. SIGPIPE is caught rather
	// than ignored, because children inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	stderr := os.Stderr
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: stderr}})
	log.SetLevel(log.Warning)
	if len(args) < 3 {
		fmt.Fprintf(stderr, "%s: started by hand; it is a part of glovebox\n", message.SupervisorName)
		return 2
	}
	// Mounts that this process makes stay in its namespace. Unmounts on the host
	// also take effect here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		fmt.Fprintf(stderr, "%s: detach mounts: %v\n", message.SupervisorName, err)
		return 1
	}
	conn, err := message.FileConn(os.NewFile(makerFD, "driver"))
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", message.SupervisorName, err)
		return 1
	}
	dir := filepath.Join(args[0], "gvisor")
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", message.SupervisorName, err)
		return 1
	}
	// gVisor gives its own standard streams to a box.
	os.Stdin, os.Stdout, os.Stderr = null, null, null
	m := &maker{
		dir:   dir,
		guest: args[1],
		null:  null,
		cgs:   cgroup.Find(users.RootIsRoot()),
		boxes: map[string]*madeBox{},
	}
	m.hostRoot = onceMade(func() (*rootfs.Tree, error) {
		return rootfs.MakeHost(filepath.Join(m.dir, "host"), 0, nil)
	})
	m.hostGuest = onceMade(func() (*rootfs.Tree, error) {
		return rootfs.MakeGuest(filepath.Join(m.dir, "guest"), m.guest, 0, nil)
	})
	if shown := args[3:]; len(shown) > 0 {
		if m.firstUser, err = strconv.Atoi(args[2]); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", message.SupervisorName, err)
			return 1
		}
		given := make([]rootfs.Given, len(shown))
		for i, path := range shown {
			given[i] = rootfs.Given{Source: path, To: path, FD: makerFD + 1 + i}
		}
		given[0].To = rootfs.GuestName
		m.userRoot = onceMade(func() (*rootfs.Tree, error) {
			return rootfs.MakeHost(filepath.Join(m.dir, "host-users"), m.firstUser, given[1:])
		})
		m.userGuest = onceMade(func() (*rootfs.Tree, error) {
			return rootfs.MakeGuest(filepath.Join(m.dir, "guest-users"), m.guest, m.firstUser, given[:1])
		})
	}
	m.serve(conn.(*net.UnixConn))
	return 0
}

// onceMade returns a function that calls make until it succeeds, and then always
// returns that result.
func onceMade[T any](make func() (*T, error)) func() (*T, error) {
	var mu sync.Mutex
	var made *T
	return func() (*T, error) {
		mu.Lock()
		defer mu.Unlock()
		if made != nil {
			return made, nil
		}
		var err error
		made, err = make()
		return made, err
	}
}

// serve answers requests until the driver has ended. Then it destroys the attached
// boxes that this maker made.
func (m *maker) serve(conn *net.UnixConn) {
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	data := make([]byte, message.MaxRequest)
	for {
		req, files, err := message.Receive(conn, data)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				log.Warningf("receive request: %v", err)
			}
			break
		}
		if len(files) == 0 {
			continue
		}
		calls.Go(func() { m.answer(ctx, req, files) })
	}
	cancel()
	waitFor(&calls, lastCalls)
	m.mu.Lock()
	var attached []*madeBox
	for _, b := range m.boxes {
		if !b.record.Spec.Detached && b.own {
			attached = append(attached, b)
		}
	}
	m.mu.Unlock()
	var ends sync.WaitGroup
	for _, b := range attached {
		ends.Go(func() {
			if err := m.destroy(b.record.Spec.ID); err != nil {
				log.Warningf("destroy %s: %v", b.record.Spec.ID, err)
			}
		})
	}
	ends.Wait()
	m.linger()
}

// lastCalls bounds how long requests may continue after the driver's end. A box
// that does not answer must not keep the others alive.
const lastCalls = 5 * time.Second

// waitFor waits for calls to end, for at most limit.
func waitFor(calls *sync.WaitGroup, limit time.Duration) {
	ended := make(chan struct{})
	go func() {
		calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(limit):
	}
}

// linger stays while detached boxes are alive whose memory only this process
// watches. It closes standard error first, because the driver takes its end as the
// end of all other work.
func (m *maker) linger() {
	m.mu.Lock()
	var watched []*madeBox
	for _, b := range m.boxes {
		if b.watch != nil {
			watched = append(watched, b)
		}
	}
	m.mu.Unlock()
	if len(watched) == 0 {
		return
	}
	if err := unix.Dup3(int(m.null.Fd()), 2, 0); err != nil {
		return
	}
	for _, b := range watched {
		for b.alive() {
			time.Sleep(lingerLook)
		}
		b.watch.Stop()
	}
}

// lingerLook is the interval at which a lingering maker checks its boxes.
const lingerLook = time.Second

// answer executes req and sends the reply on the first file.
func (m *maker) answer(ctx context.Context, req *message.Request, files []*os.File) {
	defer message.CloseAll(files[1:])
	conn, err := message.FileConn(files[0])
	if err != nil {
		log.Warningf("open reply stream: %v", err)
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		// The driver never writes here. End of file cancels the request.
		_, _ = conn.Read(make([]byte, 1))
		cancel()
	}()
	var rep message.Reply
	var spans trace.Recording
	if req.Trace {
		ctx = trace.With(ctx, spans.Take)
	}
	if err := m.do(ctx, req, files[1:], &rep); err != nil {
		rep = message.Reply{Err: message.NewError(err)}
	}
	rep.Spans = spans.Spans()
	if err := json.NewEncoder(conn).Encode(&rep); err != nil && req.Op == message.OpCreate {
		// The driver does not know of the box, so it would leak.
		_ = m.destroy(req.Ref)
	}
}

func (m *maker) do(ctx context.Context, req *message.Request, files []*os.File, rep *message.Reply) (err error) {
	if needsRef := req.Op != message.OpList && req.Op != message.OpProbe; needsRef && !sandbox.ValidID(req.Ref) {
		if req.Op == message.OpDiscard {
			return nil // List does not return such a reference
		}
		return fmt.Errorf("%w: %q is not a reference", driver.ErrGone, req.Ref)
	}
	switch req.Op {
	case message.OpProbe:
		return m.probe()
	case message.OpCreate:
		if len(files) < 2 || len(files) > message.MaxStreams+1 || req.Spec == nil || req.Spec.ID != req.Ref {
			return sandbox.Errorf(sandbox.Invalid, "incomplete order")
		}
		if len(req.Secrets) != len(req.Spec.Secrets) {
			return sandbox.Errorf(sandbox.Invalid, "secrets without values")
		}
		for i, v := range req.Secrets {
			req.Spec.Secrets[i].Value = sandbox.NewSecretValue(v)
		}
		if req.FirstUser != 0 && req.FirstUser != m.firstUser {
			return sandbox.Errorf(sandbox.Unavailable, "the process that makes sandboxes has other users for them than it was asked for")
		}
		if req.FirstUser == 0 || req.Spec.Workspace == "" {
			return m.create(ctx, req, files, nil)
		}
		last := len(files) - 1
		return m.create(ctx, req, files[:last], &rootfs.Tree{File: files[last]})
	case message.OpAttach:
		b, err := m.find(req.Ref)
		if err != nil {
			return err
		}
		if !b.alive() {
			if !b.own {
				m.forget(req.Ref)
			}
			return fmt.Errorf("%w: its kernel does not run", driver.ErrGone)
		}
		if b.record.WatchMemory && b.watch == nil {
			rep.Sentry = b.sentry()
		}
		return nil
	case message.OpWatch:
		return m.watch(req.Ref, files)
	case message.OpDestroy, message.OpDiscard:
		return m.destroy(req.Ref)
	case message.OpList:
		rep.Refs, err = m.list()
		return err
	}
	b, err := m.find(req.Ref)
	if err != nil {
		return err
	}
	switch req.Op {
	case message.OpDial:
		if len(files) != 1 {
			return sandbox.Errorf(sandbox.Invalid, "no stream to connect")
		}
		return b.dial(ctx, files[0])
	case message.OpReceipt:
		rep.Report, err = b.report(ctx)
	case message.OpIncidents:
		rep.Incidents, err = b.incidents()
	case message.OpUnnamed:
		rep.Sentry, rep.Workspace = b.sentry(), b.record.Spec.Workspace
	case message.OpTraffic:
		rep.Traffic, err = b.traffic(ctx, req.After)
	case message.OpAuthority:
		rep.Authority, err = b.authority(ctx)
	case message.OpSetNetwork:
		err = b.setNetwork(ctx, req.Network)
	case message.OpPause:
		err = b.pause()
	case message.OpResume:
		err = b.resume()
	default:
		err = sandbox.Errorf(sandbox.Internal, "unknown operation %q", req.Op)
	}
	return err
}

func (m *maker) boxesDir() string          { return filepath.Join(m.dir, "boxes") }
func (m *maker) boxDir(ref string) string  { return filepath.Join(m.boxesDir(), ref) }
func (m *maker) remember(b *madeBox)       { m.mu.Lock(); m.boxes[b.record.Spec.ID] = b; m.mu.Unlock() }
func (m *maker) forget(ref string)         { m.mu.Lock(); delete(m.boxes, ref); m.mu.Unlock() }
func (m *maker) known(ref string) *madeBox { m.mu.Lock(); defer m.mu.Unlock(); return m.boxes[ref] }

// find returns a live box. It loads the box if another maker made it.
func (m *maker) find(ref string) (*madeBox, error) {
	if b := m.known(ref); b != nil {
		m.mu.Lock()
		ready := b.ready
		m.mu.Unlock()
		if ready {
			return b, nil
		}
		return nil, sandbox.Errorf(sandbox.Conflict, "box is still being made")
	}
	b, err := m.load(ref)
	if err != nil {
		return nil, err
	}
	if !b.alive() {
		return nil, fmt.Errorf("%w: its kernel does not run", driver.ErrGone)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.boxes[ref]; other != nil {
		return other, nil
	}
	m.boxes[ref] = b
	if b.record.Linked {
		m.keepFresh()
	}
	return b, nil
}

// watch enforces the memory limit of a box that another maker made; files contains
// its memory file. The other maker may enforce it at the same time.
func (m *maker) watch(ref string, files []*os.File) error {
	b, err := m.find(ref)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return sandbox.Errorf(sandbox.Invalid, "no memory file")
	}
	fd, err := unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.watch != nil {
		return unix.Close(fd)
	}
	for _, pid := range process.OfBox(ref) {
		if b.record.Linked && pid != b.sentry() {
			b.network = pid
		}
	}
	b.startWatch(os.NewFile(uintptr(fd), memwatch.FileName))
	return nil
}

// list returns the references of all boxes that have a directory.
func (m *maker) list() ([]string, error) {
	refs := map[string]bool{}
	entries, err := os.ReadDir(m.boxesDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list boxes: %w", err)
	}
	for _, e := range entries {
		if sandbox.ValidID(e.Name()) {
			refs[e.Name()] = true
		}
	}
	var out []string
	for ref := range refs {
		out = append(out, ref)
	}
	slices.Sort(out)
	return out, nil
}
