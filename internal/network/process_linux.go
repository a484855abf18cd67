package network

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ProcessName is the first argument of a gateway's process. The second is the
// sandbox's identifier.
const ProcessName = "glovebox-network"

// The file descriptors of a gateway's process.
const (
	linkFD    = 3 // the link
	controlFD = 4 // the control socket, on which it listens
	orderFD   = 5 // its order, as JSON
)

// KeptFDs returns the file descriptors that the process needs.
func KeptFDs() map[int]bool { return map[int]bool{linkFD: true, controlFD: true, orderFD: true} }

// An order is the configuration that a gateway's process reads at its start.
type order struct {
	Network sandbox.Network      `json:"network"`
	Terms   sandbox.NetworkTerms `json:"terms"`
	Secrets []sandbox.Secret     `json:"secrets,omitempty"`
	Values  []string             `json:"values,omitempty"` // of the secrets
	Sums    bool                 `json:"sums,omitempty"`
	Memory  int64                `json:"memory,omitempty"`
	Names   hostNames            `json:"names"`
	// Apart is true if the process is in its own namespaces of all types except
	// network.
	Apart bool `json:"apart,omitempty"`
}

// Main is the main function of a gateway's process. It returns the exit status
// when the other end of the link is closed.
func Main() int {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", ProcessName, err)
		return 1
	}
	return 0
}

func run() error {
	f := os.NewFile(orderFD, "order")
	var o order
	err := json.NewDecoder(f).Decode(&o)
	f.Close()
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	control := os.NewFile(controlFD, "control")
	l, err := net.FileListener(control)
	control.Close()
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	if len(o.Values) != len(o.Secrets) {
		return errors.New("read request: secrets have no values")
	}
	for i, v := range o.Values {
		o.Secrets[i].Value = sandbox.NewSecretValue(v)
	}
	debug.SetMemoryLimit(cmp.Or(o.Memory, memoryGoal))
	g, err := New(Options{Network: o.Network, Terms: o.Terms, Secrets: o.Secrets, Memory: o.Memory})
	if err != nil {
		return err
	}
	g.resolver.use(o.Names)
	if len(o.Secrets) > 0 {
		// Fill the cache of root certificates now, because there are no files to
		// read after confine. Without root certificates no server is trusted.
		if _, err := x509.SystemCertPool(); err != nil {
			return fmt.Errorf("read certificates: %w", err)
		}
	}
	link, closed, err := openLink(linkFD, o.Sums)
	if err != nil {
		return err
	}
	// The process has read no bytes from the sandbox before this call.
	walls, err := confine(o.Apart)
	if err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	if err := g.Attach(link); err != nil {
		return err
	}
	go g.answer(l, walls)
	gone := make(chan error, 1)
	go func() { gone <- awaitHangUp(linkFD) }()
	select {
	case <-closed:
		return nil // the process ends with all its connections
	case err := <-gone:
		return err
	}
}

// awaitHangUp returns when the other end of the link is closed. A reader of the
// link notices it only if it waits for a packet at that moment. Otherwise it
// reads empty packets in a loop.
func awaitHangUp(fd int32) error {
	for {
		fds := []unix.PollFd{{Fd: fd}} // POLLHUP is always reported
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for the end of the link: %w", err)
		}
		if fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
			return nil
		}
	}
}

// A request is a question to a gateway's process, and a reply is its answer. Each
// request has its own connection.
type request struct {
	After   int64           `json:"after,omitempty"`
	Network sandbox.Network `json:"network,omitempty"` // to put in force, if set
	// Rules are header rules to put in force with Network, if Ruled is set. Values
	// are their values.
	Rules  []sandbox.Secret `json:"rules,omitempty"`
	Values []string         `json:"values,omitempty"`
	Ruled  bool             `json:"ruled,omitempty"`
	Names  *hostNames       `json:"names,omitempty"` // to resolve with from now on, if set
}

type reply struct {
	Traffic sandbox.Traffic `json:"traffic"`
	Network sandbox.Network `json:"network"` // in force
	// Authority is the certificate that the sandbox must trust, in PEM, if any.
	Authority []byte `json:"authority,omitempty"`
	// Walls are the layers that isolate the process from the machine.
	Walls []string `json:"walls,omitempty"`
	Err   string   `json:"err,omitempty"`
	// ErrKind and Hint are the kind and the hint of Err.
	ErrKind sandbox.Kind `json:"err_kind,omitempty"`
	Hint    string       `json:"hint,omitempty"`
	// Ruled is true if the process can have header rules. Those of an earlier
	// version cannot.
	Ruled bool `json:"ruled,omitempty"`
}

// askTimeout bounds one request.
const askTimeout = 10 * time.Second

// maxReply bounds a reply, in bytes. It is enough for the largest number of
// records.
const maxReply = 32 << 20

func (g *Gateway) answer(l net.Listener, walls []string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(askTimeout))
			var req request
			if err := json.NewDecoder(c).Decode(&req); err != nil {
				return
			}
			rep := reply{Walls: walls, Ruled: true}
			switch {
			case req.Names != nil:
				g.resolver.use(*req.Names)
			case req.Network != "":
				if err := req.change(g); err != nil {
					rep.Err, rep.ErrKind, rep.Hint = err.Error(), sandbox.KindOf(err), sandbox.HintOf(err)
				}
			default:
				rep.Traffic = g.Traffic(req.After)
			}
			rep.Network, rep.Authority = g.network(), g.Authority()
			_ = json.NewEncoder(c).Encode(&rep)
		}()
	}
}

// controlSocket is the name of the socket on which a process listens.
const controlSocket = "network.sock"

// A Process is a gateway in its own process.
type Process struct {
	// Pid is its process ID. It is a child of the process that called Start,
	// which must wait for it.
	Pid int
}

// Start starts a gateway's process from program, whose main calls [Main] when its
// first argument is [ProcessName]. The process listens on a socket in dir, the
// directory of the sandbox id. The caller passes link, the sandbox's end, to the
// sandbox, and closes it. Start ignores the options for tests. Values of secrets
// exist only in the memory of the process. If an earlier process in dir had header
// rules and opts has none, they are in force without their values: the process
// refuses requests to their hosts. The error wraps [sandbox.Invalid] if the policy
// is not in canonical form.
func Start(program, id, dir string, opts Options) (_ *Process, link *os.File, err error) {
	if err := opts.Network.CheckCanonical(); err != nil {
		return nil, nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make link: %w", err)
	}
	near, link := os.NewFile(uintptr(fds[0]), "gateway"), os.NewFile(uintptr(fds[1]), "link")
	defer near.Close()
	defer func() {
		if err != nil {
			link.Close()
		}
	}()
	for _, fd := range fds {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, linkBuffer)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, linkBuffer)
	}
	control, err := listenIn(dir)
	if err != nil {
		return nil, nil, err
	}
	defer control.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	defer w.Close()
	command := func(attr *syscall.SysProcAttr) *exec.Cmd {
		cmd := exec.Command(program)
		cmd.Args = []string{ProcessName, id}
		// Otherwise Go's runtime keeps files of its cgroup open.
		cmd.Env = append(Environ(), "GODEBUG=containermaxprocs=0,updatemaxprocs=0")
		cmd.Dir = "/"
		cmd.ExtraFiles = []*os.File{near, control, r}
		cmd.SysProcAttr = attr
		return cmd
	}
	o := order{Network: opts.Network, Terms: opts.Terms, Sums: opts.Sums, Memory: opts.Memory, Names: readHostNames(), Apart: true}
	cmd := command(apart())
	if err := cmd.Start(); err != nil {
		// This user may not create namespaces. The process then has fewer layers
		// of isolation, and reports them in each reply.
		o.Apart = false
		cmd = command(&syscall.SysProcAttr{Setsid: true})
		if err := cmd.Start(); err != nil {
			return nil, nil, fmt.Errorf("start the network process: %w", err)
		}
	}
	if o.Secrets, err = keepRules(dir, opts.Secrets); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, nil, err
	}
	for _, s := range o.Secrets {
		o.Values = append(o.Values, s.Value.Reveal())
	}
	data, err := json.Marshal(o)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, nil, err
	}
	r.Close() // so that Write fails if the process ended
	if _, err := w.Write(data); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, nil, fmt.Errorf("configure the network: %w", err)
	}
	return &Process{Pid: cmd.Process.Pid}, link, nil
}

// Environ returns the part of this process's environment that a gateway's process
// needs: the location of the root certificates, if it is set.
func Environ() []string {
	env := []string{}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// linkBuffer is the size of a link's buffers, in bytes, in each direction.
const linkBuffer = 4 << 20

// listenIn listens on the control socket in dir. It uses a path through a file
// descriptor, because the path of a socket is limited and dir may be longer.
func listenIn(dir string) (*os.File, error) {
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: inDir(d), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for DNS queries: %w", err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	return l.File()
}

func inDir(d *os.File) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(d.Fd())), controlSocket)
}

// RemoveSocket removes the control socket of a process that has ended from dir.
// It returns nil if there is none.
func RemoveSocket(dir string) error {
	err := os.Remove(filepath.Join(dir, controlSocket))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Walls returns the layers that isolate the process in dir from the machine, as
// text for a person. The error wraps [sandbox.Unavailable] if the process does
// not answer.
func Walls(ctx context.Context, dir string) ([]string, error) {
	rep, err := ask(ctx, dir, request{After: math.MaxInt64 - 1})
	return rep.Walls, err
}

// Ask returns the traffic that the process in dir counted, and the policy in
// force. The traffic has the connections that ended after the connection with the
// number after. The error wraps [sandbox.Unavailable] if the process does not
// answer.
func Ask(ctx context.Context, dir string, after int64) (sandbox.Traffic, sandbox.Network, error) {
	rep, err := ask(ctx, dir, request{After: after})
	return rep.Traffic, rep.Network, err
}

// Authority returns the certificate, in PEM, that the sandbox of the process in
// dir must trust for its secrets to work. It returns nil if the sandbox has no
// secrets. The error wraps [sandbox.Unavailable] if the process does not answer.
func Authority(ctx context.Context, dir string) ([]byte, error) {
	rep, err := ask(ctx, dir, request{After: math.MaxInt64 - 1})
	return rep.Authority, err
}

func ask(ctx context.Context, dir string, req request) (rep reply, err error) {
	lost := func(err error) error {
		return sandbox.Errorf(sandbox.Unavailable, "the network process of the sandbox does not answer: %w", err)
	}
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return rep, lost(err)
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", inDir(d))
	if err != nil {
		return rep, lost(err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := json.NewEncoder(c).Encode(&req); err != nil {
		return rep, lost(err)
	}
	if err := json.NewDecoder(&bounded{c, maxReply}).Decode(&rep); err != nil {
		return rep, lost(err)
	}
	return rep, nil
}

// A bounded reader returns at most n bytes, then an error.
type bounded struct {
	c net.Conn
	n int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.n <= 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := b.c.Read(p[:min(len(p), b.n)])
	b.n -= n
	return n, err
}

// freshEvery is the interval at which KeepFresh checks for changes.
const freshEvery = 5 * time.Second

// KeepFresh sends the machine's files for name resolution to the processes in
// dirs when they change, until done is closed. It also sends them to each process
// that it sees for the first time, because an earlier caller may have ended long
// before.
func KeepFresh(done <-chan struct{}, dirs func() []string) {
	told := map[string]hostNames{}
	tick := time.NewTicker(freshEvery)
	defer tick.Stop()
	for {
		now, seen := readHostNames(), map[string]hostNames{}
		for _, dir := range dirs() {
			was, known := told[dir]
			if known && was == now || refresh(dir, now) == nil {
				seen[dir] = now
			}
		}
		told = seen
		select {
		case <-done:
			return
		case <-tick.C:
		}
	}
}

func refresh(dir string, n hostNames) error {
	_, err := ask(context.Background(), dir, request{Names: &n})
	return err
}
