package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

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

// Workspaces serve the workspaces in a volume of the engine, if the engine does not
// have this machine's directories. Their methods are safe for concurrent use.
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
		return "", false // the operator configured where the engine has them
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
	image, err := importEmpty(ctx, e)
	if err != nil {
		return nil, err
	}
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

// importEmpty returns an empty image, and makes it if there is none.
func importEmpty(ctx context.Context, e *dockerapi.Engine) (*runnerImage, error) {
	in, err := e.ImageInspect(ctx, emptyImage)
	if errdefs.IsNotFound(err) {
		pr, pw := io.Pipe()
		defer pr.Close()
		go func() { pw.CloseWithError(container.WriteEmptyImage(pw)) }()
		resp, ierr := e.ImageImport(ctx, client.ImageImportSource{Source: pr, SourceName: "-"}, emptyImage, client.ImageImportOptions{})
		if ierr != nil {
			return nil, e.Explain(ierr)
		}
		if _, err := io.Copy(io.Discard, resp); err != nil {
			return nil, errors.Join(e.Explain(err), resp.Close())
		}
		resp.Close()
		in, err = e.ImageInspect(ctx, emptyImage)
	}
	if err != nil {
		return nil, e.Explain(err)
	}
	return &runnerImage{id: in.ID}, nil
}
