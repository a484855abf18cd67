package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
)

// Values of Options.Workspaces.
const (
	WorkspacesDirectory = "directory"
	WorkspacesVolume    = "volume"
)

// emptyImage is the image of servers of workspaces.
const emptyImage = "localhost/glovebox/nothing:1"

// workspaces serve the workspaces in a volume of the container engine, if the
// container engine does not have this machine's directories. Their methods are safe
// for concurrent use.
type workspaces struct {
	place   string // see Options.Workspaces
	outside string // see Options.Outside
	conn    *connection
	launch  *launcher
	server  *container.WorkspaceServer
}

func newWorkspaces(opts *Options, conn *connection, launch *launcher) *workspaces {
	w := &workspaces{place: opts.Workspaces, outside: opts.Outside, conn: conn, launch: launch}
	w.server = container.NewWorkspaceServer(w.start, opts.Log)
	return w
}

var _ driver.WorkspaceKeeper = (*workspaces)(nil)

// KeepsWorkspaces implements [driver.WorkspaceKeeper].
func (w *workspaces) KeepsWorkspaces() (string, bool) {
	switch w.place {
	case WorkspacesVolume:
		return container.WorkspacesDir, true
	case WorkspacesDirectory:
		return "", false
	}
	if w.outside != "" {
		return "", false // the operator configured where the container engine has them
	}
	places, err := dockerapi.Endpoints(w.conn.find)
	if err != nil || len(places) != 1 {
		return "", false // Probe reports this error
	}
	scheme, _, _ := strings.Cut(places[0].Host, "://")
	return container.WorkspacesDir, slices.Contains([]string{"tcp", "http", "https"}, scheme)
}

// DialWorkspaces implements [driver.WorkspaceKeeper].
func (w *workspaces) DialWorkspaces(ctx context.Context) (net.Conn, error) {
	return w.server.Dial(ctx)
}

// start starts the container of the server.
func (w *workspaces) start(ctx context.Context) (*container.Box, error) {
	e, err := w.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	b, err := w.startOn(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("start the container that keeps workspaces: %w", err)
	}
	return b, nil
}

func (w *workspaces) startOn(ctx context.Context, e *dockerapi.Engine) (*container.Box, error) {
	id, err := e.ImageFrom(ctx, emptyImage, dockerapi.WriteEmptyImage)
	if err != nil {
		return nil, err
	}
	image := &runnerImage{id: id}
	volume, _, err := w.launch.workspaceVolume(ctx, e)
	if err != nil {
		return nil, err
	}
	b, err := w.launch.createOnce(ctx, e, container.ServerRecord(volume, emptyImage), image, false)
	if errors.Is(err, container.ErrStartFailed) {
		b, err = w.launch.createOnce(ctx, e, container.ServerRecord(volume, emptyImage), image, true)
	}
	return b, err
}
