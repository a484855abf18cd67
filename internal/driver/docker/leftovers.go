package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	api "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.Cleaner = (*Driver)(nil)

// Leftovers implements [driver.Cleaner]. The leftovers are the stopped containers
// of any state directory, except the boxes of this driver's own state directory.
func (d *Driver) Leftovers(ctx context.Context, remove bool) ([]string, error) {
	names, err := d.leftovers(ctx, remove)
	return names, sandbox.Wrap(err, "look for leftovers", "")
}

func (d *Driver) leftovers(ctx context.Context, remove bool) ([]string, error) {
	e, err := d.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	id, err := d.state.ID()
	if err != nil {
		return nil, err
	}
	var names []string
	var errs []error
	for _, label := range []string{container.LabelState, container.LabelRole} {
		list, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", label)})
		if err != nil {
			return nil, e.Explain(err)
		}
		for _, c := range list.Items {
			if !isLeftover(&c, id, time.Now()) {
				continue
			}
			if remove {
				if err := e.Remove(ctx, c.ID); err != nil {
					errs = append(errs, err)
					continue
				}
			}
			names = append(names, fmt.Sprintf("%s container %s", e.Name, containerName(&c)))
		}
	}
	return names, errors.Join(errs...)
}

// isLeftover reports whether a container is unused; own is the identity of this
// driver's state directory.
func isLeftover(c *api.Summary, own string, now time.Time) bool {
	switch c.State {
	case api.StateCreated, api.StateExited, api.StateDead:
	case "configured", "initialized", "stopped": // Podman's names
	default:
		return false
	}
	return dockerapi.IsLeftover(c.Labels, time.Unix(c.Created, 0), own, now)
}

func containerName(c *api.Summary) string {
	if len(c.Names) > 0 {
		return strings.TrimPrefix(c.Names[0], "/")
	}
	return c.ID
}
