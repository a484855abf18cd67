package dockerapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errhttp"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver/container/stdio"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ErrAttach is wrapped by errors of [Engine.StartAttached] when the standard streams
// of a container are not available.
var ErrAttach = errors.New("attach to container")

// StartAttached starts a container that was only created, and returns its standard
// streams. The caller closes them. The program in it must not write before it
// reads. If the streams are not available, the error wraps ErrAttach.
//
// If this process is killed, the program does not run, or its standard input ends.
func (e *Engine) StartAttached(ctx context.Context, name string) (*stdio.Conn, error) {
	if e.Name == Podman {
		return e.startAndAttach(ctx, name)
	}
	s, err := e.attach(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := e.ContainerStart(ctx, name, client.ContainerStartOptions{}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// attach returns the standard streams of a container. Its errors wrap ErrAttach.
func (e *Engine) attach(ctx context.Context, name string) (*stdio.Conn, error) {
	at, err := e.ContainerAttach(ctx, name, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAttach, err)
	}
	return stdio.New(at.Conn, at.Reader, readFrame), nil
}

// startAndAttach is StartAttached for Podman, where attaching makes the container's
// first process. If this process were killed between an attach and a later start,
// the first process would wait for its start forever. So this function sends both
// requests before it reads either answer. The container engine executes them in any order,
// even if this process dies. If the engine received only the start, the guest ends
// after a time without input.
func (e *Engine) startAndAttach(ctx context.Context, name string) (s *stdio.Conn, err error) {
	start, err := e.dialCall(ctx)
	if err != nil {
		return nil, err
	}
	defer start.Close()
	streams, err := e.dialCall(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = start.SetDeadline(time.Unix(1, 0))
		_ = streams.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			err = errors.Join(ctx.Err(), err)
		}
		if err != nil {
			streams.Close()
			if s != nil {
				s.Close()
			}
		}
	}()
	if err := start.send(name+"/start", nil); err != nil {
		return nil, err
	}
	if err := streams.send(name+"/attach?stderr=1&stdin=1&stdout=1&stream=1", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"tcp"}}); err != nil {
		return nil, err
	}
	if err := start.answer(http.StatusNoContent); err != nil {
		return nil, err
	}
	err = streams.answer(http.StatusSwitchingProtocols)
	switch {
	case err == nil:
		return stdio.New(streams.Conn, streams.r, readFrame), nil
	case errdefs.IsConflict(err):
		// The engine executed the start between the two steps of the attach. Now
		// the container runs.
		streams.Close()
		return e.attach(ctx, name)
	}
	return nil, fmt.Errorf("%w: %w", ErrAttach, err)
}

// A rawCall is a call to the container engine that returns after it has sent the request. The
// client's calls wait for the answer.
type rawCall struct {
	net.Conn
	e *Engine
	r *bufio.Reader
}

func (e *Engine) dialCall(ctx context.Context) (*rawCall, error) {
	conn, err := e.Dialer()(ctx)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "connect to %s: %w", e.Name, err)
	}
	return &rawCall{Conn: conn, e: e, r: bufio.NewReader(conn)}, nil
}

// send posts to a path below /containers, in the way that the client does.
func (c *rawCall) send(path string, header http.Header) error {
	host, prefix := client.DummyHost, ""
	if at, err := client.ParseHostURL(c.e.DaemonHost()); err != nil {
		return err
	} else if at.Scheme != "unix" && at.Scheme != "npipe" {
		host, prefix = at.Host, strings.TrimSuffix(at.Path, "/")
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+host+prefix+"/v"+c.e.ClientVersion()+"/containers/"+path, http.NoBody)
	if err != nil {
		return err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("User-Agent", userAgent)
	return req.Write(c)
}

// answer reads the head of the answer, which must have this status. If the engine
// refused, the error has the kind of its status.
func (c *rawCall) answer(status int) error {
	resp, err := http.ReadResponse(c.r, &http.Request{Method: http.MethodPost})
	if err != nil {
		return err
	}
	if resp.StatusCode == status {
		return nil
	}
	defer resp.Body.Close()
	var said struct{ Message string }
	text, err := io.ReadAll(io.LimitReader(resp.Body, stdio.MaxStderr))
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	if err != nil || said.Message == "" {
		said.Message = fmt.Sprintf("%s: %q", resp.Status, text)
		if status == http.StatusSwitchingProtocols {
			said.Message = "unable to upgrade to tcp: " + said.Message // the wording of the client
		}
	}
	return fmt.Errorf("%s: %w", said.Message, errhttp.ToNative(resp.StatusCode))
}
