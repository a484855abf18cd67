package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/callfilter"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

// A client sends requests to the driver's supervisor, which it starts at the first
// use and again after its end.
type client struct {
	program, stateDir, guest string // see Options
	log                      *slog.Logger
	key                      sealed.Key // nil if there is none
	encrypt                  bool       // states with key

	sending turn // of leases; it comes before mu

	mu      sync.Mutex
	process *supervisorProcess // nil before the first use and after its end
	users   *users.Range       // nil if boxes have the host's users
	// whyHostUsers is the reason why users is nil, if there is a supervisor.
	whyHostUsers error
	closed       bool
	// leases are those of this driver's boxes. A supervisor that replaces another
	// gets them again.
	leases map[string]driver.Lease
}

// supervisorProcess is a running supervisor.
type supervisorProcess struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
	done chan struct{} // closed when the supervisor's work for this driver is done
}

// errDriverClosed returns the error for a use of a closed driver.
func errDriverClosed() error { return sandbox.Errorf(sandbox.Conflict, "driver is closed") }

// running returns the supervisor, and starts it if there is none.
func (c *client) running() (*supervisorProcess, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errDriverClosed()
	}
	if c.process != nil {
		select {
		case <-c.process.done:
			c.log.Warn("supervisor ended; starting another")
			c.process.conn.Close()
			c.process = nil
		default:
			return c.process, nil
		}
	}
	p, err := c.startLocked()
	if err != nil {
		return nil, err
	}
	c.process = p
	if refs := slices.Collect(maps.Keys(c.leases)); len(refs) > 0 {
		go c.renewLeases(p, refs)
	}
	return p, nil
}

// leaseTime bounds how long a lease may take to send. The supervisor answers in
// milliseconds unless it hangs.
const leaseTime = 10 * time.Second

// renewLeases sends the leases of the boxes refs to p, which has just started. It
// ends with p, and never starts another supervisor: that one gets its own renewal.
func (c *client) renewLeases(p *supervisorProcess, refs []string) {
	for _, ref := range refs {
		err := c.sendLease(context.Background(), p, ref)
		if err != nil {
			c.log.Warn("renew lease", "ref", ref, "error", err)
		}
		if errors.Is(err, errLost) {
			return
		}
	}
}

// setLease sets the lease of a box, until forgetLease.
func (c *client) setLease(ctx context.Context, ref string, l driver.Lease) error {
	c.keepLease(ref, l)
	p, err := c.running()
	if err != nil {
		return err
	}
	return c.sendLease(ctx, p, ref)
}

func (c *client) keepLease(ref string, l driver.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[ref] = l
}

// sendLease sends the lease of a box to p, unless it was forgotten.
func (c *client) sendLease(ctx context.Context, p *supervisorProcess, ref string) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	if err := c.sending.take(ctx); err != nil { // so that an older lease does not follow a newer one
		return err
	}
	defer c.sending.end()
	c.mu.Lock()
	l, ok := c.leases[ref]
	c.mu.Unlock()
	if !ok {
		return nil
	}
	_, err := c.exchange(ctx, p, &message.Request{Op: message.OpLease, Ref: ref, Lease: &l})
	if driver.IsGone(err) {
		c.forgetLease(ref)
	}
	return err
}

func (c *client) leaseOf(ref string) (l driver.Lease, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok = c.leases[ref]
	return l, ok
}

func (c *client) forgetLease(ref string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, ref)
}

// startLocked starts a supervisor.
func (c *client) startLocked() (*supervisorProcess, error) {
	if err := checkProgram(c.program); err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make supervisor's socket: %w", err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "driver")
	defer far.Close()
	nc, err := message.FileConn(near)
	if err != nil {
		return nil, err
	}
	conn := nc.(*net.UnixConn)

	cmd := exec.Command(c.program)
	first, trees := c.openUsersLocked()
	cmd.Args = []string{message.SupervisorName, c.stateDir, c.guest, strconv.Itoa(first)}
	cmd.Env = network.Environ()
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{far}
	for _, t := range trees {
		defer t.Close()
		cmd.Args = append(cmd.Args, t.Name())
		cmd.ExtraFiles = append(cmd.ExtraFiles, t.File)
	}
	if cmd.SysProcAttr, err = users.SupervisorAttributes(); err != nil {
		conn.Close()
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := callfilter.Start(cmd); err != nil {
		conn.Close()
		return nil, diagnosis.ExplainStart(err)
	}
	if first != 0 {
		users.LiftProcessLimit(cmd.Process.Pid)
	}
	p := &supervisorProcess{cmd: cmd, conn: conn, done: make(chan struct{})}
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			c.log.Debug("supervisor", "says", lines.Text())
		}
		_, _ = io.Copy(io.Discard, stderr)
		close(p.done)
		// The supervisor may stay to watch over detached boxes; see supervisor.linger.
		_ = cmd.Wait()
	}()
	return p, nil
}

// call sends req to the supervisor and waits for its reply. streams are the far
// ends of streams to the guest; the caller closes them.
func (c *client) call(ctx context.Context, req *message.Request, streams ...*os.File) (*message.Reply, error) {
	p, err := c.running()
	if err != nil {
		return nil, err
	}
	return c.exchange(ctx, p, req, streams...)
}

// exchange is call for the supervisor p. The wait for the reply to a lease ends at
// the context's deadline: the lease has no partial work to undo.
func (c *client) exchange(ctx context.Context, p *supervisorProcess, req *message.Request, streams ...*os.File) (*message.Reply, error) {
	near, far, err := message.Socketpair()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	files := append([]*os.File{far}, streams...)
	conn, err := message.FileConn(near)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := message.Send(p.conn, req, files...); err != nil {
		return nil, c.lost(err)
	}
	far.Close()
	// A shutdown of this side makes the supervisor cancel the request. The reply still
	// arrives, after the supervisor has undone all partial work.
	stop := context.AfterFunc(ctx, func() { _ = conn.(*net.UnixConn).CloseWrite() })
	defer stop()
	if deadline, ok := ctx.Deadline(); ok && req.Op == message.OpLease {
		if err := conn.SetReadDeadline(deadline); err != nil {
			return nil, err
		}
	}
	var rep message.Reply
	if err := json.NewDecoder(conn).Decode(&rep); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the process that makes sandboxes does not answer: %w", err)
	} else if err != nil {
		return nil, c.lost(err)
	}
	if err := rep.Err.Err(); err != nil {
		if req.Op == message.OpSave && rep.Version < message.VersionSave {
			return nil, sandbox.Errorf(sandbox.Unsupported, "the process that makes sandboxes is of an earlier version, and saves none on disk")
		}
		if (req.Op == message.OpSaveSealed || req.Op == message.OpSnapshotSealed) && rep.Version < message.VersionSealed {
			return nil, sandbox.Errorf(sandbox.Unsupported, "the process that makes sandboxes is of an earlier version, and encrypts no states")
		}
		if req.Snapshot != "" && rep.Version < message.VersionSnapshot {
			return nil, sandbox.Errorf(sandbox.Unsupported, "the process that makes sandboxes is of an earlier version, and keeps no snapshots")
		}
		if req.Op == message.OpLease && rep.Version < message.VersionLease {
			return nil, sandbox.Errorf(sandbox.Unsupported, "the process that makes sandboxes is of an earlier version, and ends none by itself")
		}
		if req.Op == message.OpUsage && rep.Version < message.VersionUsage {
			return nil, sandbox.Errorf(sandbox.Unsupported, "the process that makes sandboxes is of an earlier version, and counts no CPU time")
		}
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		return nil, err
	}
	return &rep, nil
}

// saves completes a request that writes a state: the state is encrypted if all are.
func (c *client) saves(req *message.Request) *message.Request {
	if !c.encrypt {
		return req
	}
	req.StateKey = c.key
	req.Op = map[string]string{message.OpSave: message.OpSaveSealed, message.OpSnapshot: message.OpSnapshotSealed}[req.Op]
	return req
}

// usage returns what a box has used, also if its processes have ended.
func (c *client) usage(ctx context.Context, ref string) (driver.Usage, error) {
	rep, err := c.call(ctx, &message.Request{Op: message.OpUsage, Ref: ref})
	if err != nil {
		return driver.Usage{}, sandbox.Wrap(err, "read usage of box", ref)
	}
	if rep.Usage == nil {
		return driver.Usage{}, sandbox.Errorf(sandbox.Unsupported, "read usage of box %s: it has no control group that counts its CPU time", ref)
	}
	return *rep.Usage, nil
}

// errLost is the error of a request whose supervisor ended before its reply.
var errLost = errors.New("the process that makes sandboxes ended")

func (c *client) lost(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "%w: %w", errLost, err)
}

// openUsersLocked returns the first user of this driver's boxes and the trees of the
// image "host", which the caller closes. If there are none, it returns 0 and stores
// the reason. The caller holds c.mu.
func (c *client) openUsersLocked() (first int, trees []*rootfs.Tree) {
	var err error
	if c.users == nil {
		c.users, err = users.New(c.stateDir, c.program)
	}
	if err == nil {
		if trees, err = c.users.HostTrees(c.guest); err == nil {
			return c.users.First, trees
		}
		c.users.Close()
		c.users = nil
	}
	c.whyHostUsers = err
	if os.Geteuid() == 0 {
		c.log.Warn("sandboxes have the host's numbers of users", "err", err)
	}
	return 0, nil
}

// create has the supervisor make or restore a box of a spec, with users of its own if
// possible.
func (c *client) create(ctx context.Context, req *message.Request, spec *driver.Spec, streams []*os.File) (*message.Reply, error) {
	if _, err := c.running(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	own, why, closed := c.users, c.whyHostUsers, c.closed
	c.mu.Unlock()
	if closed {
		return nil, errDriverClosed()
	}
	files := slices.Clone(streams)
	if own != nil && spec.Workspace != "" {
		trees, err := openTrees(own, spec)
		defer closeTrees(trees)
		if errors.Is(err, errNoTree) {
			own, why = nil, err
		} else if err != nil {
			return nil, err
		}
		if own != nil {
			for _, t := range trees {
				files = append(files, t.File)
			}
		}
	}
	req.StateKey = c.key
	if own != nil {
		req.FirstUser = own.First
	} else if os.Geteuid() == 0 {
		req.WhyHostUsers = why.Error()
	}
	return c.call(ctx, req, files...)
}

// errNoTree means that this machine cannot give a directory other numbers of users.
var errNoTree = errors.New("a workspace cannot be mounted with other numbers of users")

// openTrees returns the trees of a spec's workspace and mounts, in that order, with
// the numbers of users that the box has.
func openTrees(own *users.Range, spec *driver.Spec) (trees []*rootfs.Tree, err error) {
	open := func(dir string, attributes uint64) error {
		if err := rootfs.CheckWorkspace(dir); err != nil {
			return err
		}
		tree, err := own.Open(dir, 0, attributes)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoTree, err)
		}
		trees = append(trees, tree)
		return nil
	}
	err = open(spec.Workspace, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	for _, m := range spec.Mounts {
		if err != nil {
			break
		}
		attributes := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
		if m.ReadOnly {
			attributes |= unix.MOUNT_ATTR_RDONLY
		}
		err = open(m.Dir, attributes)
	}
	return trees, err
}

func closeTrees(trees []*rootfs.Tree) {
	for _, t := range trees {
		t.Close()
	}
}

// close ends the use of the supervisor by new requests, and returns the process, or
// nil. The caller ends it.
func (c *client) close() *supervisorProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.process
	c.process, c.closed = nil, true
	if c.users != nil {
		c.users.Close()
		c.users = nil
	}
	return p
}

// end ends the supervisor, and returns when it has destroyed the attached boxes.
func (p *supervisorProcess) end() error {
	err := p.conn.Close()
	<-p.done
	return err
}
