package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// restart ends the processes of a box, and starts others in their place. The box has
// nothing of its former memory and writable layer. If it fails after the end of the
// processes, the box is gone.
func (s *supervisor) restart(ctx context.Context, b *box, req *message.Request, files []*os.File) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.gone:
		return fmt.Errorf("%w: it was destroyed", driver.ErrGone)
	case !b.alive():
		return b.noSentry()
	case len(b.record.Spec.Secrets) > 0 || len(b.record.Spec.Mounts) > 0 || len(files) > 1:
		return sandbox.Errorf(sandbox.Unsupported, "a sandbox with secrets or several workspaces is not restarted")
	case req.FirstUser != b.record.FirstUser:
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the sandbox was made with other users of the host than sandboxes have now"),
			"start the server as it was started then, as root or not")
	case rootName(req.Root) != b.record.Root:
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the image of the sandbox has changed since it was made"),
			"load the image again that the sandbox was made from")
	}
	_, preparing := trace.Start(ctx, "prepare files")
	defer func() { preparing.End(err) }()
	if err := rootfs.CheckWorkspace(b.record.Spec.Workspace); err != nil {
		return err
	}
	plan, err := newPlan(s.groups, &b.record.Spec)
	if err != nil {
		return err
	}
	if err := b.keepCountsLocked(ctx); err != nil {
		log.Warningf("keep the counts of %s, which restarts: %v", b.record.Spec.ID, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w: it ended while it was restarted", driver.ErrGone), err, s.endSavedLocked(b))
		}
	}()
	if err := s.endSavedLocked(b); err != nil {
		return err
	}
	if err := plan.apply(s.groups, b); err != nil {
		return err
	}
	var workspace *rootfs.Tree
	if len(files) == 1 {
		workspace = &rootfs.Tree{File: files[0]}
	}
	return s.launch(ctx, b, launchOrder{
		image: req.Root, workspace: workspace, preparing: preparing,
		begin: func(conf *config.Config, spec *specs.Spec) error { return b.kernel.Load().StartRoot(conf, spec) },
	})
}
