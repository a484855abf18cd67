package docker

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"

	"github.com/moby/moby/client"

	api "github.com/moby/moby/api/types/container"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/snapshots"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A platform is a container engine, as the boxes of one state directory use it.
type platform struct {
	e     *dockerapi.Engine
	conn  *connection
	state *container.StateDir

	snapshots *snapshots.Keeper
}

var _ container.Platform = (*platform)(nil)

// Usable implements [container.Platform].
func (p *platform) Usable(ctx context.Context) error {
	_, err := p.conn.open(ctx)
	return err
}

// State implements [container.Platform].
func (p *platform) State(ctx context.Context, ref string) (container.State, error) {
	c, err := p.inspect(ctx, ref)
	if err != nil || c.State == nil {
		return container.State{}, err
	}
	return container.State{Running: c.State.Running, OOMKilled: c.State.OOMKilled}, nil
}

// inspect returns the container of a box of this state directory. The error wraps
// [driver.ErrGone] if there is none.
func (p *platform) inspect(ctx context.Context, ref string) (*api.InspectResponse, error) {
	if !sandbox.ValidID(ref) {
		return nil, driver.ErrGone
	}
	if _, err := p.state.ID(); err != nil {
		return nil, err
	}
	c, err := p.e.ContainerInspect(ctx, ref, client.ContainerInspectOptions{})
	if err != nil {
		return nil, p.e.ExplainBox(err)
	}
	if c.Container.Config == nil {
		return nil, driver.ErrGone
	}
	ours, err := p.state.Owns(c.Container.Config.Labels, ref)
	if err == nil && !ours {
		err = driver.ErrGone // it belongs to another state directory
	}
	if err != nil {
		return nil, err
	}
	return &c.Container, nil
}

// Relay implements [container.Platform].
func (p *platform) Relay(ctx context.Context, ref string) (net.Conn, error) {
	streams, err := p.e.Exec(ctx, ref, append([]string{container.GuestPath}, container.RelayArgs()...))
	if err != nil {
		return nil, err
	}
	return streams, nil
}

// Snapshot implements [container.Platform].
func (p *platform) Snapshot(ctx context.Context, rec *container.Record, id string, pack container.Packer) (driver.Snapshot, error) {
	c, err := p.inspect(ctx, rec.Spec.ID)
	if err != nil {
		return driver.Snapshot{}, err
	}
	return p.snapshots.Take(ctx, p.e, rec, c, id, pack)
}

// Remove implements [container.Platform]. The tunnel goes first, because Podman does
// not remove the box's own container before that.
func (p *platform) Remove(ctx context.Context, ref string) error {
	dir, err := p.state.NetworkDir(ref)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return p.e.Remove(ctx, ref) // it never had a network
	}
	err = p.e.Remove(ctx, container.TunnelName(ref))
	if err = errors.Join(err, p.e.Remove(ctx, ref)); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
