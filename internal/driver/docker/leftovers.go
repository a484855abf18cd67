package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.Cleaner = (*Driver)(nil)

// leftoverAge is the minimum age of a leftover. A younger container that does not
// run may still be about to start.
const leftoverAge = 10 * time.Minute

// Leftovers implements [driver.Cleaner]. The leftovers are the stopped containers
// of any state directory, except the boxes of this driver's own state directory.
func (d *Driver) Leftovers(ctx context.Context, remove bool) ([]string, error) {
	names, err := d.leftovers(ctx, remove)
	return names, sandbox.Wrap(err, "look for leftovers", "")
}

func (d *Driver) leftovers(ctx context.Context, remove bool) ([]string, error) {
	e, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	id, err := d.stateID()
	if err != nil {
		return nil, err
	}
	var names []string
	var errs []error
	for _, label := range []string{labelState, labelRole} {
		list, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", label)})
		if err != nil {
			return nil, e.explain(err)
		}
		for _, c := range list.Items {
			if !isLeftover(&c, id, time.Now()) {
				continue
			}
			if remove {
				if err := e.remove(ctx, c.ID); err != nil {
					errs = append(errs, err)
					continue
				}
			}
			names = append(names, fmt.Sprintf("%s container %s", e.name, containerName(&c)))
		}
	}
	return names, errors.Join(errs...)
}

// isLeftover reports whether a container is unused; own is the identity of this
// driver's state directory.
func isLeftover(c *container.Summary, own string, now time.Time) bool {
	if c.Labels[labelRole] == "" && c.Labels[labelState] == own {
		return false // List returns it
	}
	switch c.State {
	case container.StateCreated, container.StateExited, container.StateDead:
	case "configured", "initialized", "stopped": // Podman's names
	default:
		return false
	}
	return now.Sub(time.Unix(c.Created, 0)) > leftoverAge
}

func containerName(c *container.Summary) string {
	if len(c.Names) > 0 {
		return strings.TrimPrefix(c.Names[0], "/")
	}
	return c.ID
}
