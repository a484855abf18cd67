package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/bundle"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/checkpoint"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// create makes a box as req asks. The guest's first connections are streams.
// trees are those of the spec's workspace and mounts, with translated user numbers, or
// nil.
func (s *supervisor) create(ctx context.Context, req *message.Request, streams []*os.File, trees []*rootfs.Tree) (err error) {
	spec, image := req.Spec, req.Root
	_, preparing := trace.Start(ctx, "prepare files")
	defer func() { preparing.End(err) }()
	if err := rootfs.CheckWorkspace(spec.Workspace); err != nil {
		return err
	}
	for _, m := range spec.Mounts {
		if err := rootfs.CheckWorkspace(m.Dir); err != nil {
			return err
		}
	}
	plan, err := newPlan(s.groups, spec)
	if err != nil {
		return err
	}
	b := s.newBox(req)
	if err := s.reserve(b); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, destroyErr := s.destroy(spec.ID)
			err = errors.Join(err, destroyErr)
		}
	}()
	if err := plan.apply(s.groups, b); err != nil {
		return err
	}
	if spec.Lease != nil && spec.Detached {
		if err := s.lease(b, *spec.Lease); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err = s.launch(ctx, b, launchOrder{
		image: image, trees: trees, streams: streams, secrets: spec.Secrets, preparing: preparing,
		begin: func(conf *config.Config, spec *specs.Spec) error {
			return trace.Do(ctx, "start kernel and guest", func(context.Context) error { return b.kernel.Load().StartRoot(conf, spec) })
		},
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	b.ready = true
	s.mu.Unlock()
	return nil
}

// newBox returns the box that a request asks for, of which nothing exists yet.
func (s *supervisor) newBox(req *message.Request) *box {
	spec := req.Spec
	b := &box{record: message.Record{Spec: *spec}, dir: s.boxDir(spec.ID), own: true, null: s.null}
	b.record.Linked = spec.Network != sandbox.NetworkNone
	b.record.CountsAll = true
	b.record.Root = rootName(req.Root)
	b.record.FirstUser, b.record.WhyHostUsers = req.FirstUser, req.WhyHostUsers
	b.record.UserIsRoot = spec.Workspace != "" && !users.RootIsRoot()
	return b
}

// A launchOrder says how launch starts the processes of a box.
type launchOrder struct {
	image     *message.ImageRoot // nil for the image "host"
	trees     []*rootfs.Tree     // see openMounts
	workspace *rootfs.Tree       // in place of trees, for a box without mounts
	streams   []*os.File         // for the guest
	ended     []*os.File         // in place of the streams that a saved guest began with
	secrets   []sandbox.Secret
	preparing *trace.Active // ends when the first process starts
	// begin has the sentry run programs, with the settings for that.
	begin func(*config.Config, *specs.Spec) error
}

// launch starts the processes of a box whose record is complete, and confines them.
// If there is an error, the caller ends those that were started.
func (s *supervisor) launch(ctx context.Context, b *box, o launchOrder) (err error) {
	conf, err := b.settings()
	if err != nil {
		return err
	}
	spec := bundle.New(&b.record, b.dir, len(o.streams))
	if o.image != nil {
		bundle.UseImage(&b.record, b.dir, spec, o.image)
	}
	s.filter.Give(spec)
	if o.workspace != nil {
		o.trees = []*rootfs.Tree{o.workspace}
	}
	mounts, err := s.openMounts(b, spec, o.image, o.trees)
	if err != nil {
		return err
	}
	defer message.CloseAll(mounts)
	if err := bundle.Write(b.dir, spec); err != nil {
		return err
	}
	passed := map[int]*os.File{}
	for i, stream := range o.streams {
		passed[bundle.GuestConnFD+i] = stream
		if err := b.streams.Add(stream); err != nil {
			return err
		}
	}
	for i, stream := range o.ended {
		passed[bundle.GuestConnFD+i] = stream
	}
	var link *os.File
	if b.record.Linked {
		if link, err = s.startNetwork(b, o.secrets); err != nil {
			return err
		}
		defer link.Close()
	}
	o.preparing.End(nil)
	_, making := trace.Start(ctx, "start processes")
	err = s.startKernel(b, conf, spec, mounts, passed)
	making.End(err)
	if err != nil {
		return err
	}
	// Moving a process into a control group waits for the host kernel, for ten
	// milliseconds or more. The sentry and the guest start meanwhile. No user
	// program runs before both are done, except those of a saved box.
	confined := make(chan error, 1)
	confine := func() {
		confined <- trace.Do(ctx, "confine them", func(context.Context) error { return b.confine() })
	}
	if len(o.streams) > 0 {
		go confine()
	} else {
		confine()
	}
	if link != nil {
		conf, err = b.link(conf, link)
	}
	if err == nil {
		err = o.begin(conf, spec)
	}
	if err := <-confined; err != nil {
		return err
	}
	if err != nil {
		return diagnosis.ExplainStart(err)
	}
	files, err := checkpoint.ReadSentryFiles(b.sentry())
	if err != nil {
		return err
	}
	b.streams.Started(files)
	if b.record.WatchMemory {
		file, err := memwatch.Open(b.sentry())
		if err != nil {
			return err
		}
		b.startWatch(file)
	}
	return ctx.Err()
}

// reserve makes the box's directory and registers the box. Resources that are made
// afterwards can then be cleaned up.
func (s *supervisor) reserve(b *box) error {
	if err := os.MkdirAll(s.boxesDir(), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return sandbox.Errorf(sandbox.Conflict, "a box of that name exists")
		}
		return err
	}
	s.remember(b)
	return nil
}

// startNetwork starts the process of the box's network, and returns the box's end
// of the link to it.
func (s *supervisor) startNetwork(b *box, secrets []sandbox.Secret) (*os.File, error) {
	spec := &b.record.Spec
	p, link, err := network.Start("/proc/self/exe", spec.ID, b.dir, network.Options{
		Network: spec.Network, Terms: spec.NetworkTerms, Secrets: secrets,
		Memory: allowance.NetworkMemory + spec.Limits.MemoryBytes/4,
	})
	if err != nil {
		return nil, err
	}
	if err := s.hold(b, p.Pid); err != nil {
		link.Close()
		return nil, err
	}
	b.network = p.Pid
	s.keepFresh()
	return link, nil
}

// startKernel starts the sentry of a box, up to the point where it waits for the
// start of the guest. mounts are the files that the box sees: see openMounts. The
// specification must be in the box's directory.
//
// If there is an error, the caller removes the partial box.
func (s *supervisor) startKernel(b *box, conf *config.Config, spec *specs.Spec, mounts []*os.File, passed map[int]*os.File) error {
	kernel, err := sentry.Start(conf, spec, sentry.StartOptions{
		ID:       b.record.Spec.ID,
		Dir:      b.dir,
		Mounts:   mounts,
		Passed:   passed,
		Attached: !b.record.Spec.Detached,
	})
	if err != nil {
		return err
	}
	b.kernel.Store(kernel)
	if err := s.hold(b, kernel.Getpid()); err != nil {
		return diagnosis.ExplainStart(err)
	}
	return sentry.Keep(b.dir, kernel)
}
