package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/runsc/config"
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/bundle"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/checkpoint"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const recordFile = "box.json"

// box is a box in its supervisor.
type box struct {
	record message.Record
	dir    string
	own    bool     // this supervisor created the box
	null   *os.File // the supervisor's
	// conf are gVisor's settings, from the first use until the box is saved.
	conf atomic.Pointer[config.Config]

	// The processes of the network and the sentry, if own. Until the box is ready,
	// the supervisor's mu guards the slice; after that, the slice does not change.
	children []*process.Child
	ready    bool                          // the box is complete; guarded by the supervisor's mu
	kernel   atomic.Pointer[runsc.Sandbox] // nil if there is no sentry
	network  int                           // the process of the box's network; 0 if there is none or it is not own
	watch    *memwatch.Watch               // nil unless the supervisor enforces the memory limit

	// lease is nil if this supervisor's driver has not set one, or if another
	// supervisor holds the box. Guarded by the supervisor's mu.
	lease   *lease
	leasing sync.Mutex // held while the lease is set; it comes before the supervisor's mu

	streams checkpoint.Streams
	// earlierKills is the record's MemoryKills.
	earlierKills atomic.Int64

	mu   sync.Mutex // held while the box is paused, resumed, saved or destroyed
	gone bool       // guarded by mu
	// The time of the sentry's next garbage collection before a pause, and the
	// interval to the one after it. Guarded by mu.
	giveBackAt    time.Time
	giveBackAfter time.Duration
}

func (b *box) memoryMark() string { return filepath.Join(b.dir, "memory-killed") }

func (b *box) save() error { return b.writeWhole(recordFile, &b.record) }

// writeWhole writes v to a file of the box's directory, by an atomic rename.
func (b *box) writeWhole(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Replace(filepath.Join(b.dir, name), data, 0o600)
}

// sentry returns the process ID of the sentry, or 0.
func (b *box) sentry() int {
	k := b.kernel.Load()
	if k == nil {
		return 0
	}
	return k.Getpid()
}

// alive reports whether the sentry runs. A zombie does not run.
func (b *box) alive() bool {
	pid := b.sentry()
	return pid > 0 && process.IsOfBox(pid, b.record.Spec.ID)
}

// dial starts the guest's connector in the box, with stream as its standard input.
// The connector passes that socket to the guest and exits.
func (b *box) dial(ctx context.Context, stream *os.File) error {
	if b.sentry() == 0 || !b.alive() {
		return b.noSentry()
	}
	given, err := b.streams.Give(stream)
	if err != nil {
		return err
	}
	defer given()
	return b.execute(ctx, &control.ExecArgs{
		Argv:         []string{rootfs.GuestPath, "connect"},
		Capabilities: &auth.TaskCapabilities{},
		FilePayload:  control.NewFilePayload(map[int]*os.File{0: stream, 1: b.null, 2: b.null}, nil),
	})
}

// settings returns gVisor's settings for the box.
func (b *box) settings() (*config.Config, error) {
	if conf := b.conf.Load(); conf != nil {
		return conf, nil
	}
	conf, err := bundle.Settings(&b.record, b.dir)
	if err == nil {
		b.conf.Store(conf)
	}
	return conf, err
}

// execute runs a command of the guest's program in the box.
func (b *box) execute(ctx context.Context, args *control.ExecArgs) error {
	k := b.kernel.Load()
	if k == nil || !b.alive() {
		return b.noSentry()
	}
	args.ContainerID, args.Filename, args.WorkingDirectory, args.NoNewPrivileges = k.ID, rootfs.GuestPath, "/", true
	command := args.Argv[1]
	conf, err := b.settings()
	if err != nil {
		return err
	}
	pid, err := k.Execute(conf, args)
	if err != nil {
		return b.orGone(fmt.Errorf("start %s: %w", command, err))
	}
	status := make(chan error, 1)
	go func() {
		ws, err := k.WaitPID(k.ID, pid)
		if err == nil && (!ws.Exited() || ws.ExitStatus() != 0) {
			err = fmt.Errorf("%s ended with %d", command, ws)
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

// noSentry returns the error for an operation that needs the sentry of a box without
// one.
func (b *box) noSentry() error {
	if b.saved() {
		return sandbox.Errorf(sandbox.Conflict, "the sandbox is saved on disk, and must be resumed first")
	}
	return fmt.Errorf("%w: its kernel does not run", driver.ErrGone)
}

// orGone adds ErrGone to err if the box is gone.
func (b *box) orGone(err error) error {
	if err != nil && !b.alive() && !b.saved() {
		return errors.Join(driver.ErrGone, err)
	}
	return err
}

// incidents returns the counts of the box.
func (b *box) incidents() (driver.Incidents, error) {
	in := driver.Incidents{Alive: b.alive() || b.saved()}
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
	in.MemoryKills += int(b.earlierKills.Load())
	return in, nil
}

// usage returns what a box has used, also if its processes have ended, or nil if its
// control group does not count it.
func (s *supervisor) usage(ref string) (*driver.Usage, error) {
	b := s.known(ref)
	if b == nil {
		var err error
		if b, err = s.load(ref); err != nil {
			return nil, err
		}
	}
	b.mu.Lock() // a save moves the count from the group to the record
	defer b.mu.Unlock()
	return b.usageLocked()
}

// usageLocked is usage for a caller that holds b.mu.
func (b *box) usageLocked() (*driver.Usage, error) {
	cpu, err := b.record.Cgroup.CPUTime()
	if errors.Is(err, fs.ErrNotExist) {
		if b.record.CPUTime == 0 {
			return nil, nil
		}
		return &driver.Usage{CPU: b.record.CPUTime}, nil // the group is gone
	}
	if err != nil {
		return nil, fmt.Errorf("read CPU time: %w", err)
	}
	u := driver.Usage{CPU: b.record.CPUTime + cpu - b.record.GroupCPUTime}
	if !b.saved() {
		u.Memory = b.memoryUsedLocked()
	}
	return &u, nil
}

// countCPULocked moves the count of the control group to the record, and writes that.
// A repetition counts nothing twice. The caller holds b.mu.
func (b *box) countCPULocked() error {
	cpu, err := b.record.Cgroup.CPUTime()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read CPU time: %w", err)
	}
	b.record.CPUTime += cpu - b.record.GroupCPUTime
	b.record.GroupCPUTime = cpu
	return b.save()
}

// memoryUsedLocked returns the memory in use, or 0 if nothing counts it.
func (b *box) memoryUsedLocked() int64 {
	read := b.record.Cgroup.MemoryUsed
	if b.record.WatchMemory {
		if b.watch == nil {
			return 0
		}
		read = b.watch.Used
	}
	n, err := read()
	if err != nil {
		return 0
	}
	return n
}

// report returns the supervisor's data about the box.
func (b *box) report(ctx context.Context) (*message.Report, error) {
	b.mu.Lock()
	rec := b.record
	saved := b.saved()
	b.mu.Unlock()
	if saved {
		return &message.Report{Record: rec, Saved: true}, nil
	}
	if !b.alive() {
		return nil, b.noSentry()
	}
	var inForce sandbox.Network
	var walls []string
	if rec.Linked {
		// The policy of a network that does not answer is "".
		_, inForce, _ = network.Ask(ctx, b.dir, math.MaxInt64)
		walls, _ = network.Walls(ctx, b.dir)
	}
	return &message.Report{
		Network: inForce,
		Walls:   walls,
		Record:  rec,
		Sentry:  b.sentry(),
		Paused:  b.paused(),
		Watched: b.watch != nil && b.watch.Running(),
	}, nil
}
