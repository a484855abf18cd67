package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// create makes a box as req asks. The guest's first connections are streams.
// workspace, if not nil, is the tree of the spec's workspace, with translated user
// numbers.
func (s *supervisor) create(ctx context.Context, req *message.Request, streams []*os.File, workspace *rootfs.Tree) (err error) {
	spec, image := req.Spec, req.Root
	_, preparing := trace.Start(ctx, "prepare files")
	defer func() { preparing.End(err) }()
	if err := rootfs.CheckWorkspace(spec.Workspace); err != nil {
		return err
	}
	plan, err := newPlan(s.groups, spec)
	if err != nil {
		return err
	}
	b := &box{record: message.Record{Spec: *spec}, dir: s.boxDir(spec.ID), own: true, null: s.null}
	b.record.Linked = spec.Network != sandbox.NetworkNone
	b.record.CountsAll = true
	b.record.FirstUser, b.record.WhyHostUsers = req.FirstUser, req.WhyHostUsers
	b.record.UserIsRoot = spec.Workspace != "" && !users.RootIsRoot()
	if err := s.reserve(b); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.destroy(spec.ID))
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
	if b.conf, err = b.settings(); err != nil {
		return err
	}
	bundle := b.bundle(len(streams))
	if image != nil {
		b.useImage(bundle, image)
	}
	s.filter.Give(bundle)
	mounts, err := s.openMounts(b, bundle, image, workspace)
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
		if link, err = s.startNetwork(b, spec.Secrets); err != nil {
			return err
		}
		defer link.Close()
	}
	preparing.End(nil)
	_, making := trace.Start(ctx, "start processes")
	err = s.startKernel(b, bundle, mounts, passed)
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
	s.mu.Lock()
	b.ready = true
	s.mu.Unlock()
	return nil
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
func (s *supervisor) startKernel(b *box, spec *specs.Spec, mounts []*os.File, passed map[int]*os.File) error {
	var err error
	b.kernel, err = sentry.Start(b.conf, spec, sentry.StartOptions{
		ID:       b.record.Spec.ID,
		Dir:      b.dir,
		Mounts:   mounts,
		Passed:   passed,
		Attached: !b.record.Spec.Detached,
	})
	if err != nil {
		return err
	}
	if err := s.hold(b, b.kernel.Getpid()); err != nil {
		return diagnosis.ExplainStart(err)
	}
	return b.saveKernel()
}
