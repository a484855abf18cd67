package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
)

var _ driver.WorkspaceKeeper = (*Driver)(nil)

// KeepsWorkspaces implements [driver.WorkspaceKeeper].
func (d *Driver) KeepsWorkspaces() (string, bool) {
	return container.WorkspacesDir, d.opts.WorkspaceClaim != ""
}

// DialWorkspaces implements [driver.WorkspaceKeeper].
func (d *Driver) DialWorkspaces(ctx context.Context) (net.Conn, error) {
	return d.keeper.Dial(ctx)
}

// startKeeper starts the Pod of the server of workspaces.
func (d *Driver) startKeeper(ctx context.Context) (*container.Box, error) {
	a, err := d.conn.open()
	if err != nil {
		return nil, err
	}
	rec := container.ServerRecord(d.opts.WorkspaceClaim, d.opts.GuestImage)
	rec.OneUser = true
	var b *container.Box
	if err = errors.Join(d.opts.check(), d.removeKeepers(ctx, a)); err == nil {
		b, err = d.launch(ctx, a, rec)
	}
	if err != nil {
		return nil, fmt.Errorf("start the Pod that keeps workspaces: %w", err)
	}
	return b, nil
}

// removeKeepers removes the Pods of servers that ended with their process.
func (d *Driver) removeKeepers(ctx context.Context, a *api) error {
	id, err := d.state.ID()
	if err != nil {
		return err
	}
	refs := map[string]string{} // of the servers, by the names of their Pods
	err = a.list(ctx, container.LabelState+"="+id+","+container.LabelRole+"="+container.RoleWorkspaces, func(pod *corev1.Pod) {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			refs[pod.Name] = pod.Labels[container.LabelSandbox]
		}
	})
	for name := range refs {
		d.links.Forget(refs[name])
		err = errors.Join(err, a.discard(ctx, name))
	}
	return explainIn(ctx, err)
}
