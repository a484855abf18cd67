package guest

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" + addedPath
	addedPath   = ":" + workDir + "/.glovebox/bin" // programs of packages that are installed later
	workDir     = "/data"
)

// start starts a process and streams its events.
func (g *Guest) start(r *http.Request, in *guestapi.StartRequest, out *rpc.Stream) error {
	timeout, err := processTimeout(r)
	if err != nil {
		return err
	}
	p, a, err := g.launch(in, rpc.User(r), timeout)
	if err != nil {
		return err
	}
	start := guestapi.ProcessEvent{Start: &guestapi.StartEvent{PID: uint32(p.child.pid)}}
	if err := out.Send(&guestapi.EventMessage{Event: start}); err != nil {
		a.detach()
		if p.tag == "" {
			_ = g.killTree(p) // no caller knows its pid
		}
		return err
	}
	return g.carry(r, p, a, out)
}

// processTimeout returns how long a process may run; 0 is no limit.
func processTimeout(r *http.Request) (time.Duration, error) {
	text := r.Header.Get(guestapi.HeaderTimeout)
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseUint(text, 10, 64)
	if err != nil || len(text) > 10 {
		return 0, rpc.Errorf(guestapi.CodeInvalidArgument, "bad %s: %q", guestapi.HeaderTimeout, text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// launch starts a process with one stream attached.
func (g *Guest) launch(in *guestapi.StartRequest, user string, timeout time.Duration) (*process, *attachment, error) {
	acct, err := g.accounts.Find(user)
	if err != nil {
		return nil, nil, err
	}
	cfg := in.Process
	if err := checkConfig(&cfg); err != nil {
		return nil, nil, err
	}
	id, err := g.procs.reserve(in.Tag)
	if err != nil {
		return nil, nil, err
	}
	p := &process{
		g: g, id: id, tag: in.Tag, config: cfg, account: acct, keep: in.Keep,
		out:     newOutput(in.Keep, &g.procs.held),
		expired: make(chan struct{}),
	}
	env := g.environment(acct, cfg.Envs, in.PTY != nil)
	env = append(env, markerName+"="+g.markers.of(id))
	if err := g.spawn(p, in, env); err != nil {
		g.procs.release(in.Tag)
		return nil, nil, err
	}
	a := p.out.attach()
	g.procs.add(p)
	for _, s := range p.sources {
		s.p = p
		go s.read()
	}
	if timeout > 0 {
		p.timer = time.AfterFunc(timeout, p.expire)
	}
	go p.wait()
	return p, a, nil
}

// checkConfig refuses a command that execve cannot take.
func checkConfig(cfg *guestapi.ProcessConfig) error {
	if cfg.Cmd == "" {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "no command given")
	}
	for _, s := range append([]string{cfg.Cmd, cfg.Cwd}, cfg.Args...) {
		if strings.IndexByte(s, 0) >= 0 {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "a command, argument or directory has a NUL byte")
		}
	}
	for k, v := range cfg.Envs {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "bad environment variable %q", k)
		}
	}
	return nil
}

// ownVariables are variables that a container engine adds to an image's.
var ownVariables = map[string]bool{"HOSTNAME": true, "TERM": true, "container": true}

// nodePath is the variable that names the package directories of Node and Bun.
// The image's directories come after those of packages that are installed later.
const nodePath = "NODE_PATH"

// threadsName is how many threads OpenMP, OpenBLAS, MKL, PyTorch and others use.
// Their default is one for each visible processor. Such threads wait by
// spinning, which uses up the box's CPU limit.
const threadsName = "OMP_NUM_THREADS"

// environment returns the environment of a process of a. It has no variable of
// the guest's own environment, unless that is the image's (see [Config.Env]).
func (g *Guest) environment(a *account.Account, extra map[string]string, terminal bool) []string {
	env := map[string]string{
		"PATH": defaultPath,
		"LANG": "C.UTF-8",
	}
	if g.cfg.CPUs > 0 {
		env[threadsName] = strconv.Itoa(int(math.Ceil(g.cfg.CPUs)))
	}
	for _, entry := range g.cfg.Env {
		if k, v, ok := strings.Cut(entry, "="); ok && k != "" && !ownVariables[k] {
			env[k] = v
			if k == "PATH" && v != "" {
				env[k] += addedPath
			}
		}
	}
	env["HOME"], env["USER"], env["LOGNAME"], env["SHELL"] = a.Home, a.Name, a.Name, a.Shell
	if terminal {
		env["TERM"] = "xterm-256color"
	}
	modules := env[nodePath]
	for k, v := range extra {
		env[k] = v
	}
	if added := extra[nodePath]; added != "" && modules != "" {
		env[nodePath] = added + ":" + modules
	}
	delete(env, markerName)
	list := make([]string, 0, len(env)+1)
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

// spawn starts p's program.
func (g *Guest) spawn(p *process, in *guestapi.StartRequest, env []string) error {
	var file string
	err := g.accounts.As(p.account, func() (err error) {
		if p.cwd, err = workingDir(cmp.Or(p.config.Cwd, g.cfg.WorkDir, g.imageDir()), p.account); err != nil {
			return err
		}
		file, err = findCommand(p.config.Cmd, p.cwd, env)
		return err
	})
	if err != nil {
		return err
	}
	var pl *plumbing
	if in.PTY != nil {
		pl, err = g.openTerminal(p.account, in.PTY.Size)
	} else {
		var owner *account.Account
		if !g.cfg.AsSelf {
			owner = p.account
		}
		pl, err = g.pipes(in.Stdin == nil || *in.Stdin, owner)
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "PWD=") }) {
		env = append(env, "PWD="+p.cwd) // as a shell sets it
	}
	attr := &syscall.ProcAttr{
		Dir:   p.cwd,
		Env:   env,
		Files: []uintptr{uintptr(pl.child[0]), uintptr(pl.child[1]), uintptr(pl.child[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: in.PTY != nil},
	}
	if !g.cfg.AsSelf {
		attr.Sys.Credential = p.account.Credential()
	}
	// beforeFork changes this thread, so that the child inherits the change. It
	// does not affect the guest: a dropped bounding capability matters only at
	// an exec.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	argv := append([]string{p.config.Cmd}, p.config.Args...)
	p.child, err = g.children.start(file, argv, attr, g.beforeFork, g.afterFork)
	if err != nil {
		pl.closeAll()
		return execError(err, p.config.Cmd, file)
	}
	pl.closeChild()
	p.sources, p.stdin, p.terminal = pl.sources, pl.stdin, pl.terminal
	if info, ok := procfs.Read(p.child.pid); ok {
		p.began = info.Start
	}
	return nil
}

// beforeFork sets the capabilities and the OOM score that a child inherits.
func (g *Guest) beforeFork() {
	if g.cfg.MaxProcesses > 0 {
		// With these capabilities root's programs would be exempt from the
		// limit. Without CAP_SETPCAP the guest cannot drop them.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_RESOURCE, 0, 0, 0)
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0)
	}
	if g.pid == 1 {
		// With this capability root's programs could trace the guest.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_PTRACE, 0, 0, 0)
	}
	if g.oomScore != "" {
		_ = setOOMScore(g.oomFile, g.oomScore) // raising it is always allowed
	}
}

func (g *Guest) afterFork() {
	if g.oomScore != "" {
		_ = setOOMScore(g.oomFile, g.ownScore) // the guest had this score before
	}
}

// imageDir returns the image's start directory, or "" if it does not exist.
func (g *Guest) imageDir() string {
	var st unix.Stat_t
	if dir := g.cfg.ImageDir; path.IsAbs(dir) && path.Clean(dir) != "/" &&
		unix.Stat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return path.Clean(dir)
	}
	return ""
}

// workingDir returns the directory in which a process starts.
func workingDir(dir string, a *account.Account) (string, error) {
	if dir == "" {
		for _, d := range []string{workDir, a.Home} {
			var st unix.Stat_t
			if unix.Stat(d, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR &&
				unix.Faccessat(unix.AT_FDCWD, d, unix.X_OK, unix.AT_EACCESS) == nil {
				return d, nil
			}
		}
		return "/", nil
	}
	dir = a.Path(dir)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		if err == unix.ENOENT {
			return "", rpc.Errorf(guestapi.CodeNotFound, "working directory does not exist: %s", dir)
		}
		return "", rpc.FileError(err, dir)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", rpc.Errorf(guestapi.CodeInvalidArgument, "working directory is not a directory: %s", dir)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS); err != nil {
		return "", rpc.FileError(err, dir)
	}
	return dir, nil
}

// findCommand returns the file of a command. A command with a slash is a path;
// another is looked up in the PATH of the new process.
func findCommand(cmd, cwd string, env []string) (string, error) {
	if strings.Contains(cmd, "/") {
		file := cmd
		if !path.IsAbs(file) {
			file = path.Join(cwd, file)
		}
		var st unix.Stat_t
		switch err := unix.Stat(file, &st); {
		case err == unix.ENOENT || err == unix.ENOTDIR:
			return "", rpc.Errorf(guestapi.CodeNotFound, "no such program: %s", cmd)
		case err != nil:
			return "", rpc.FileError(err, cmd)
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			return "", rpc.Errorf(guestapi.CodeInvalidArgument, "not a program but a directory: %s", cmd)
		}
		return file, nil
	}
	dirs := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = v
		}
	}
	refused := false
	for dir := range strings.SplitSeq(dirs, ":") {
		if !path.IsAbs(dir) {
			dir = path.Join(cwd, dir)
		}
		file := path.Join(dir, cmd)
		var st unix.Stat_t
		if unix.Stat(file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if regular.MayExecute(file, &st) {
			return file, nil
		}
		refused = true
	}
	if refused {
		return "", rpc.Errorf(guestapi.CodePermissionDenied, "not executable: %s", cmd)
	}
	return "", rpc.Errorf(guestapi.CodeNotFound, "command not found: %s", cmd)
}

// execError returns the error of a program that did not start.
func execError(err error, cmd, file string) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		// findCommand found the file, so its interpreter or loader is missing.
		return rpc.Errorf(guestapi.CodeNotFound, "%s: its interpreter or loader does not exist", cmd)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return rpc.Errorf(guestapi.CodePermissionDenied, "not executable: %s", cmd)
	case errors.Is(err, unix.ENOEXEC):
		return rpc.Errorf(guestapi.CodeInvalidArgument, "%s is not a program for this machine, and has no #! line", cmd)
	case errors.Is(err, unix.E2BIG):
		return rpc.Errorf(guestapi.CodeInvalidArgument, "arguments and environment are too long")
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: %v", cmd, err)
	case errors.Is(err, unix.EAGAIN):
		return rpc.Errorf(guestapi.CodeResourceExhausted, "the limit on processes is reached")
	}
	return rpc.Exhausted("start "+file, err)
}

// connect attaches to a process.
func (g *Guest) connect(r *http.Request, in *guestapi.ConnectRequest, out *rpc.Stream) error {
	p, err := g.procs.find(in.Process)
	if err != nil {
		return err
	}
	start := guestapi.ProcessEvent{Start: &guestapi.StartEvent{PID: uint32(p.child.pid)}}
	if err := out.Send(&guestapi.EventMessage{Event: start}); err != nil {
		return err
	}
	a := p.out.attach()
	if in.Have != nil {
		a.again(*in.Have)
	}
	return g.carry(r, p, a, out)
}

var envelopePool = sync.Pool{New: func() any { return new([]byte) }}

// carry streams a process's output and its end. It returns at the end or when
// the caller leaves, and detaches a.
func (g *Guest) carry(r *http.Request, p *process, a *attachment, out *rpc.Stream) error {
	defer a.detach()
	interval := rpc.Keepalive(r)
	silent := time.NewTimer(interval)
	defer silent.Stop()
	for {
		c, err := a.wait(r.Context(), silent.C)
		if err != nil {
			return rpc.Errorf(guestapi.CodeCanceled, "the caller left")
		}
		silent.Reset(interval)
		switch {
		case c == nil:
			alive := guestapi.ProcessEvent{Keepalive: &guestapi.KeepaliveEvent{}}
			if err := out.Send(&guestapi.EventMessage{Event: alive}); err != nil {
				return err
			}
		case c.end != nil:
			end := *c.end
			if !rpc.Extended(r) {
				end.Detail = nil
			}
			if err := out.Last(&guestapi.EventMessage{Event: guestapi.ProcessEvent{End: &end}}); err != nil {
				return err
			}
			a.took()
			g.procs.took(p)
			return nil
		default:
			// The buffer comes from a pool, so a silent stream holds none.
			buf := envelopePool.Get().(*[]byte)
			*buf = guestapi.AppendDataEnvelope((*buf)[:0], c.stream, c.data)
			err := out.Raw(*buf)
			envelopePool.Put(buf)
			if err != nil {
				return err
			}
			a.took()
		}
	}
}

func (g *Guest) list(*http.Request, *struct{}) (*guestapi.ListProcessesResponse, error) {
	out := &guestapi.ListProcessesResponse{Processes: []guestapi.ProcessInfo{}}
	for _, p := range g.procs.list() {
		out.Processes = append(out.Processes, guestapi.ProcessInfo{
			Config: p.config, PID: uint32(p.child.pid), Tag: p.tag,
		})
	}
	return out, nil
}

func (g *Guest) update(_ *http.Request, in *guestapi.UpdateRequest) (*struct{}, error) {
	p, err := g.procs.find(in.Process)
	if err != nil {
		return nil, err
	}
	if in.PTY == nil || in.PTY.Size == nil {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "nothing to update")
	}
	if p.terminal == nil {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d has no terminal", p.child.pid)
	}
	if err := setSize(p.terminal, *in.PTY.Size); err != nil {
		if errors.Is(err, os.ErrClosed) {
			return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d has ended", p.child.pid)
		}
		return nil, err
	}
	return &struct{}{}, nil
}

func (g *Guest) sendInput(r *http.Request, in *guestapi.SendInputRequest) (*struct{}, error) {
	p, err := g.procs.find(in.Process)
	if err != nil {
		return nil, err
	}
	if len(in.Input.Stdin) > 0 && len(in.Input.PTY) > 0 {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "input for both stdin and a terminal")
	}
	data := in.Input.Stdin
	if len(in.Input.PTY) > 0 {
		data = in.Input.PTY
		if p.terminal == nil {
			return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d has no terminal", p.child.pid)
		}
	}
	if p.stdin == nil {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d was started without input", p.child.pid)
	}
	if err := p.stdin.write(r.Context().Done(), data); err != nil {
		return nil, err
	}
	return &struct{}{}, nil
}

func (g *Guest) closeStdin(r *http.Request, in *guestapi.CloseStdinRequest) (*struct{}, error) {
	p, err := g.procs.find(in.Process)
	if err != nil {
		return nil, err
	}
	if p.stdin == nil {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d was started without input", p.child.pid)
	}
	if p.terminal != nil {
		const endOfFile = 4 // Control-D
		if err := p.stdin.write(r.Context().Done(), []byte{endOfFile}); err != nil {
			return nil, err
		}
		return &struct{}{}, nil
	}
	p.stdin.close()
	return &struct{}{}, nil
}

var signals = map[guestapi.Signal]unix.Signal{
	guestapi.SIGTERM: unix.SIGTERM,
	guestapi.SIGINT:  unix.SIGINT,
	guestapi.SIGHUP:  unix.SIGHUP,
}

func (g *Guest) sendSignal(_ *http.Request, in *guestapi.SendSignalRequest) (*struct{}, error) {
	p, err := g.procs.find(in.Process)
	if err != nil {
		return nil, err
	}
	if in.Signal == guestapi.SIGKILL {
		p.limitHit.Store(p.limitHit.Load() || g.atProcessLimit())
		if err := g.killTree(p); err != nil {
			return nil, err
		}
		return &struct{}{}, nil
	}
	sig, ok := signals[in.Signal]
	if !ok {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "unknown signal %q", string(in.Signal))
	}
	switch err := g.children.signal(p.child, sig, true); {
	case errors.Is(err, unix.ESRCH):
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d has ended", p.child.pid)
	case err != nil:
		return nil, rpc.Errorf(guestapi.CodeInternal, "signal process %d: %v", p.child.pid, err)
	}
	return &struct{}{}, nil
}
