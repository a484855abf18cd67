package gvisor

import (
	"context"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
)

// openUsers returns the first user of this driver's boxes and the trees of the
// image "host", which the caller closes. If there are none, it returns 0 and stores
// the reason. The caller holds d.mu.
func (d *Driver) openUsers() (first int, trees []*rootfs.Tree) {
	var err error
	if d.users == nil {
		d.users, err = users.New(d.opts.StateDir, d.opts.Program)
	}
	if err == nil {
		if trees, err = d.users.HostTrees(d.opts.Guest); err == nil {
			return d.users.First, trees
		}
		d.users.Close()
		d.users = nil
	}
	d.whyHostUsers = err
	if os.Geteuid() == 0 {
		d.opts.Log.Warn("sandboxes have the host's numbers of users", "err", err)
	}
	return 0, nil
}

// create has the maker make a box, with users of its own if possible.
func (d *Driver) create(ctx context.Context, req *message.Request, streams []*os.File) (*message.Reply, error) {
	if _, err := d.running(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	own, why, closed := d.users, d.whyHostUsers, d.closed
	d.mu.Unlock()
	if closed {
		return nil, errDriverClosed()
	}
	files := slices.Clone(streams)
	if own != nil && req.Spec.Workspace != "" {
		if err := rootfs.CheckWorkspace(req.Spec.Workspace); err != nil {
			return nil, err
		}
		workspace, err := own.Open(req.Spec.Workspace, 0, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
		if err != nil {
			own, why = nil, err
		} else {
			defer workspace.Close()
			files = append(files, workspace.File)
		}
	}
	if own != nil {
		req.FirstUser = own.First
	} else if os.Geteuid() == 0 {
		req.WhyHostUsers = why.Error()
	}
	return d.call(ctx, req, files...)
}
