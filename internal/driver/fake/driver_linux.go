package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.Driver = (*Driver)(nil)

// A Driver is the fake driver.
type Driver struct {
	opts  Options
	boxes string // the directory of the boxes' directories

	mu    sync.Mutex
	owned map[string]*supervised // guarded by mu
}

// supervised is the supervisor of a box that this driver created.
type supervised struct {
	life *os.File      // the writing end of the pipe that the supervisor watches
	gone chan struct{} // closed after the supervisor has ended and was waited for
}

// New returns a driver. Several drivers may share a state directory, in one process
// or in several.
func New(opts Options) (*Driver, error) {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil || opts.Dir == "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "open state directory %q: not a path (%v)", opts.Dir, err)
	}
	boxes := filepath.Join(dir, "boxes")
	if err := os.MkdirAll(boxes, 0o700); err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	return &Driver{opts: opts, boxes: boxes, owned: make(map[string]*supervised)}, nil
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info { return d.opts.info() }

// Probe implements [driver.Driver]. The driver is usable on every machine that runs
// the test.
func (d *Driver) Probe(ctx context.Context) error { return ctx.Err() }

// Close implements [driver.Driver]. Attached boxes remain until this process ends,
// detached boxes also after it.
func (d *Driver) Close() error { return nil }

// Create implements [driver.Driver].
func (d *Driver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	b, err := d.create(ctx, spec)
	if err != nil {
		return nil, sandbox.Wrap(err, "create box", spec.ID)
	}
	return d.wrap(b), nil
}

func (d *Driver) create(ctx context.Context, spec *driver.Spec) (_ *box, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if d.opts.OnCreate != nil {
		if err := d.opts.OnCreate(ctx, spec); err != nil {
			return nil, err
		}
	}
	if err := d.opts.check(spec); err != nil {
		return nil, err
	}
	dir := filepath.Join(d.boxes, spec.ID)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, sandbox.Errorf(sandbox.Conflict, "there is such a box")
	} else if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeTree(dir))
		}
	}()
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the supervisor has a descriptor of its own
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, specFile), text, 0o600); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(dir, workDir), 0o755); err != nil {
		return nil, err
	}
	s, ready, err := d.supervise(dir, lock)
	if err != nil {
		return nil, err
	}
	if err := awaitReady(ctx, ready, s); err != nil {
		s.life.Close() // then the supervisor ends the box
		<-s.gone
		return nil, err
	}
	if spec.Detached {
		if _, err := s.life.Write([]byte{'D'}); err != nil {
			s.life.Close()
			<-s.gone
			return nil, fmt.Errorf("let go of the box: %w", err)
		}
	}
	d.mu.Lock()
	d.owned[spec.ID] = s
	d.mu.Unlock()
	return d.open(spec.ID)
}

// supervise starts a supervisor for the box in dir, which inherits the lock. The
// supervisor writes readyText to ready when the guest can be dialled, otherwise the
// text of an error. The caller closes ready.
func (d *Driver) supervise(dir string, lock *os.File) (_ *supervised, ready *os.File, err error) {
	lifeR, lifeW, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer lifeR.Close()
	readyR, readyW, err := os.Pipe()
	if err != nil {
		lifeW.Close()
		return nil, nil, err
	}
	defer readyW.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(cleanEnv(dir), roleVariable+"="+roleSupervisor)
	cmd.Dir = dir
	cmd.Stdin = lifeR
	cmd.Stdout = readyW
	if d.opts.Stderr != nil {
		cmd.Stderr = d.opts.Stderr
	}
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		lifeW.Close()
		readyR.Close()
		return nil, nil, fmt.Errorf("start supervisor: %w", err)
	}
	s := &supervised{life: lifeW, gone: make(chan struct{})}
	go func() {
		cmd.Wait() // the supervisor's files, not its exit status, say how it ended
		lifeW.Close()
		close(s.gone)
	}()
	return s, readyR, nil
}

// awaitReady waits until the guest can be dialled.
func awaitReady(ctx context.Context, ready *os.File, s *supervised) error {
	said := make(chan error, 1)
	go func() {
		defer ready.Close()
		text, err := io.ReadAll(io.LimitReader(ready, 4096))
		switch {
		case err != nil:
			said <- err
		case string(text) == readyText:
			said <- nil
		default:
			said <- fmt.Errorf("start guest: %q", text)
		}
	}()
	select {
	case err := <-said:
		return err
	case <-ctx.Done():
		// The supervisor closes the pipe when it ends, which ends the reader.
		return ctx.Err()
	}
}

// Attach implements [driver.Driver].
func (d *Driver) Attach(ctx context.Context, ref string) (driver.Box, error) {
	if err := ctx.Err(); err != nil {
		return nil, sandbox.Wrap(err, "attach to box", "")
	}
	b, err := d.open(ref)
	if err != nil {
		return nil, sandbox.Wrap(err, "attach to box", "")
	}
	return d.wrap(b), nil
}

// open returns the box ref, if it is alive.
func (d *Driver) open(ref string) (*box, error) {
	if !sandbox.ValidID(ref) {
		return nil, driver.ErrGone
	}
	b := &box{d: d, id: ref, dir: filepath.Join(d.boxes, ref)}
	text, err := os.ReadFile(filepath.Join(b.dir, specFile))
	if err != nil {
		return nil, driver.ErrGone
	}
	if err := json.Unmarshal(text, &b.spec); err != nil {
		return nil, driver.ErrGone
	}
	// The supervisor makes the control socket last.
	if _, err := os.Lstat(filepath.Join(b.dir, controlSocket)); err != nil {
		return nil, driver.ErrGone
	}
	sup, err := findSupervisor(b.dir)
	if err != nil {
		return nil, err
	}
	defer sup.close()
	b.supervisor = sup.proc
	return b, nil
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list boxes: %w", err)
	}
	entries, err := os.ReadDir(d.boxes)
	if err != nil {
		return nil, fmt.Errorf("list boxes: %w", err)
	}
	var refs []string
	for _, e := range entries {
		if sandbox.ValidID(e.Name()) {
			refs = append(refs, e.Name())
		}
	}
	return refs, nil
}

// Discard implements [driver.Driver].
func (d *Driver) Discard(ctx context.Context, ref string) error {
	if !sandbox.ValidID(ref) {
		return nil
	}
	return sandbox.Wrap(d.destroy(ctx, ref), "discard box", ref)
}

// destroy ends the supervisor of a box, if it has one, and removes the remaining
// files.
func (d *Driver) destroy(ctx context.Context, id string) error {
	dir := filepath.Join(d.boxes, id)
	sup, err := findSupervisor(dir)
	switch {
	case driver.IsGone(err):
	case err != nil:
		return err
	default:
		defer sup.close()
		if err := sup.end(ctx); err != nil {
			return err
		}
	}
	d.mu.Lock()
	s := d.owned[id]
	d.mu.Unlock()
	if s != nil {
		<-s.gone
		d.mu.Lock()
		delete(d.owned, id)
		d.mu.Unlock()
	}
	return removeTree(dir)
}

// KillGuest kills the guest of a box, as if it had crashed.
func (d *Driver) KillGuest(ref string) error {
	if !sandbox.ValidID(ref) {
		return driver.ErrGone
	}
	return control(filepath.Join(d.boxes, ref), controlKillGuest)
}
