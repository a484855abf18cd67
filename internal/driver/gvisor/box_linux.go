package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/runsc/config"
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

const recordFile = "box.json"

// madeBox is a box in its maker.
type madeBox struct {
	record message.Record
	dir    string
	own    bool // this maker created the box
	conf   *config.Config
	null   *os.File // the maker's

	// The processes of the network and the sentry, if own. Until the box is ready,
	// the maker's mu guards the slice; after that, the slice does not change.
	children []*process.Child
	ready    bool            // the box is complete; guarded by the maker's mu
	kernel   *runsc.Sandbox  // nil if no sentry was started
	network  int             // the process of the box's network; 0 if there is none or it is not own
	watch    *memwatch.Watch // nil unless the maker enforces the memory limit

	mu   sync.Mutex // held while the box is paused, resumed or destroyed
	gone bool       // guarded by mu
	// The time of the sentry's next garbage collection before a pause, and the
	// interval to the one after it. Guarded by mu.
	giveBackAt    time.Time
	giveBackAfter time.Duration
}

// create makes a box as req asks. The guest's first connections are streams.
// workspace, if not nil, is the tree of the spec's workspace, with translated user
// numbers.
func (m *maker) create(ctx context.Context, req *message.Request, streams []*os.File, workspace *rootfs.Tree) (err error) {
	spec, image := req.Spec, req.Root
	_, preparing := trace.Start(ctx, "prepare files")
	defer func() { preparing.End(err) }()
	if err := rootfs.CheckWorkspace(spec.Workspace); err != nil {
		return err
	}
	plan, err := m.plan(spec)
	if err != nil {
		return err
	}
	b := &madeBox{record: message.Record{Spec: *spec}, dir: m.boxDir(spec.ID), own: true, null: m.null}
	b.record.Linked = spec.Network != sandbox.NetworkNone
	b.record.CountsAll = true
	b.record.FirstUser, b.record.WhyHostUsers = req.FirstUser, req.WhyHostUsers
	b.record.UserIsRoot = spec.Workspace != "" && !users.RootIsRoot()
	if err := m.reserve(b); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.destroy(spec.ID))
		}
	}()
	if err := plan.apply(m, b); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.conf, err = m.config(b); err != nil {
		return err
	}
	bundle := b.bundle(len(streams))
	if image != nil {
		b.useImage(bundle, image)
	}
	m.filter.Give(bundle)
	mounts, err := m.openMounts(b, bundle, image, workspace)
	if err != nil {
		return err
	}
	defer message.CloseAll(mounts)
	if err := b.writeBundle(bundle); err != nil {
		return err
	}
	passed := map[int]*os.File{}
	for i, stream := range streams {
		passed[guestConnFD+i] = stream
	}
	var link *os.File
	if b.record.Linked {
		if link, err = b.startNetwork(m, spec.Secrets); err != nil {
			return err
		}
		defer link.Close()
	}
	preparing.End(nil)
	_, making := trace.Start(ctx, "start processes")
	err = m.startKernel(b, bundle, mounts, passed)
	making.End(err)
	if err != nil {
		return err
	}
	// Moving a process into a control group waits for the host kernel, for ten
	// milliseconds or more. The sentry and the guest start meanwhile. No user
	// program runs before both are done.
	confined := make(chan error, 1)
	go func() {
		confined <- trace.Do(ctx, "confine them", func(context.Context) error { return b.confine() })
	}()
	conf := b.conf
	if link != nil {
		conf, err = b.link(link)
	}
	if err == nil {
		err = trace.Do(ctx, "start kernel and guest", func(context.Context) error { return b.kernel.StartRoot(conf, bundle) })
	}
	if err := <-confined; err != nil {
		return err
	}
	if err != nil {
		return diagnosis.ExplainStart(err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	b.ready = true
	m.mu.Unlock()
	return nil
}

// reserve makes the box's directory and registers the box. Resources that are made
// afterwards can then be cleaned up.
func (m *maker) reserve(b *madeBox) error {
	if err := os.MkdirAll(m.boxesDir(), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return sandbox.Errorf(sandbox.Conflict, "a box of that name exists")
		}
		return err
	}
	m.remember(b)
	return nil
}

func (b *madeBox) memoryMark() string { return filepath.Join(b.dir, "memory-killed") }

func (b *madeBox) save() error { return b.writeWhole(recordFile, &b.record) }

// writeWhole writes v to a file of the box's directory, by an atomic rename.
func (b *madeBox) writeWhole(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Replace(filepath.Join(b.dir, name), data, 0o600)
}

// load returns a box that another maker made. A box whose maker died while making
// it has no sentry.
func (m *maker) load(ref string) (*madeBox, error) {
	b := &madeBox{dir: m.boxDir(ref), null: m.null}
	data, err := os.ReadFile(filepath.Join(b.dir, recordFile))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: nothing is known of it", driver.ErrGone)
		}
		return nil, err
	}
	// The file was renamed atomically, so it is damaged only if the machine crashed
	// soon after, which also ended the box. A record of another box is refused,
	// because destroy would kill that box's processes.
	if err := json.Unmarshal(data, &b.record); err != nil {
		return nil, fmt.Errorf("%w: its record is damaged: %w", driver.ErrGone, err)
	}
	if b.record.Spec.ID != ref {
		return nil, fmt.Errorf("%w: its record is of a box %q", driver.ErrGone, b.record.Spec.ID)
	}
	if b.conf, err = m.config(b); err != nil {
		return nil, err
	}
	if err := m.loadKernel(b); err != nil {
		return nil, err
	}
	b.ready = true
	return b, nil
}

// sentry returns the process ID of the sentry, or 0.
func (b *madeBox) sentry() int {
	if b.kernel == nil {
		return 0
	}
	return b.kernel.Getpid()
}

// alive reports whether the sentry runs. A zombie does not run.
func (b *madeBox) alive() bool {
	pid := b.sentry()
	return pid > 0 && process.IsOfBox(pid, b.record.Spec.ID)
}

// guestConnFD is the descriptor of the guest's first connection; the others follow
// it.
const guestConnFD = 3

// dial starts the guest's connector in the box, with stream as its standard input.
// The connector passes that socket to the guest and exits.
func (b *madeBox) dial(ctx context.Context, stream *os.File) error {
	if !b.alive() {
		return fmt.Errorf("%w: its kernel does not run", driver.ErrGone)
	}
	pid, err := b.kernel.Execute(b.conf, &control.ExecArgs{
		ContainerID:      b.kernel.ID,
		Filename:         rootfs.GuestPath,
		Argv:             []string{rootfs.GuestPath, "connect"},
		WorkingDirectory: "/",
		Capabilities:     &auth.TaskCapabilities{},
		NoNewPrivileges:  true,
		FilePayload:      control.NewFilePayload(map[int]*os.File{0: stream, 1: b.null, 2: b.null}, nil),
	})
	if err != nil {
		return b.orGone(fmt.Errorf("start connector: %w", err))
	}
	status := make(chan error, 1)
	go func() {
		ws, err := b.kernel.WaitPID(b.kernel.ID, pid)
		if err == nil && (!ws.Exited() || ws.ExitStatus() != 0) {
			err = fmt.Errorf("connector ended with %d", ws)
		}
		status <- err
	}()
	select {
	case err := <-status:
		return b.orGone(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// orGone adds ErrGone to err if the box is gone.
func (b *madeBox) orGone(err error) error {
	if err != nil && !b.alive() {
		return errors.Join(driver.ErrGone, err)
	}
	return err
}

// incidents returns the counts of the box.
func (b *madeBox) incidents() (driver.Incidents, error) {
	in := driver.Incidents{Alive: b.alive()}
	switch {
	case b.record.WatchMemory:
		if _, err := os.Stat(b.memoryMark()); err == nil {
			in.MemoryKills = 1
		}
	case b.record.Cgroup != nil:
		n, err := b.record.Cgroup.MemoryKills()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return in, fmt.Errorf("read memory kills: %w", err)
		}
		in.MemoryKills = n
	}
	return in, nil
}

// destroy ends a box in any state and removes all of it.
func (m *maker) destroy(ref string) error {
	b := m.known(ref)
	if b == nil {
		var err error
		if b, err = m.load(ref); errors.Is(err, driver.ErrGone) {
			// Its maker may have died before it wrote a record.
			b = &madeBox{record: message.Record{Spec: driver.Spec{ID: ref}}, dir: m.boxDir(ref)}
			if m.cgs != nil {
				b.record.Cgroup = m.cgs.Of(ref)
			}
		} else if err != nil {
			return err
		}
	}
	// Kill before locking: the holder of the lock may be waiting for a sentry that
	// does not answer. The kill ends that wait.
	if err := m.kill(b); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil
	}
	err := m.end(b)
	if err == nil {
		b.gone = true
		m.forget(ref)
	}
	return err
}

// end kills the processes of a box and removes its files. The caller holds b.mu.
func (m *maker) end(b *madeBox) error {
	if b.watch != nil {
		b.watch.Stop()
	}
	var errs []error
	if err := m.kill(b); err != nil {
		errs = append(errs, err)
	}
	if err := m.forgetKernel(b); err != nil {
		errs = append(errs, err)
	}
	if err := b.record.Cgroup.Remove(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // the record stays for the next try
	}
	return os.RemoveAll(b.dir)
}

// hold adds a process to the children of a box that is being made.
func (m *maker) hold(b *madeBox, pid int) error {
	c, err := process.Hold(pid)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b.children = append(b.children, c)
	return nil
}

// made reports whether this maker made a box and has completed it.
func (m *maker) made(b *madeBox) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return b.own && b.ready
}

// kill kills the processes of a box and returns when there are none.
//
// If this maker completed the box, its processes are this process's children.
// Nothing starts other processes for a ready box. The sentry's own children are in
// a PID namespace, which the host kernel empties before it reports the sentry's
// end. If the box is incomplete, or another maker made it, its processes are not
// all known. Then kill examines every process of the machine.
func (m *maker) kill(b *madeBox) error {
	all := m.made(b) // first, because the list of children is final only after that
	m.mu.Lock()
	children := slices.Clone(b.children)
	m.mu.Unlock()
	if err := process.KillChildren(children); err == nil && all {
		return nil
	}
	return process.KillBox(b.record.Spec.ID)
}
