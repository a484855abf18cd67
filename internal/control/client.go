package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Client sends requests to the process that listens at Path. Its errors have
// the kinds of that process's engine, or [sandbox.Unavailable] if the process
// does not answer.
type Client struct {
	Path string
}

func (c Client) dial(ctx context.Context) (net.Conn, error) {
	name, done, err := short(c.Path)
	if err != nil {
		return nil, err
	}
	defer done()
	return new(net.Dialer).DialContext(ctx, "unix", name)
}

// ask is askWithin the usual time.
func (c Client) ask(ctx context.Context, method, path string, body any) (*readerConn, *http.Response, error) {
	return c.askWithin(ctx, answerTime, method, path, body)
}

// askWithin sends one request on a new connection, and returns the connection with
// the answer. The caller closes the connection.
func (c Client) askWithin(ctx context.Context, limit time.Duration, method, path string, body any) (_ *readerConn, _ *http.Response, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lost := func(err error) error {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the process that holds the sandbox does not answer: %w", err),
			"try again; the process may be ending, or be an older version")
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, nil, lost(fmt.Errorf("%w: %w", ErrElsewhere, err))
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // fails only on a closed connection
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return nil, nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://control"+path, bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	if err := req.Write(conn); err != nil {
		return nil, nil, lost(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, nil, lost(err)
	}
	if !stop() {
		return nil, nil, lost(ctx.Err())
	}
	if resp.StatusCode == http.StatusNotFound { // also of a version without such requests
		return nil, nil, lost(ErrElsewhere)
	}
	if resp.StatusCode >= 400 {
		var p problem
		if err := json.NewDecoder(io.LimitReader(resp.Body, maxMessage)).Decode(&p); err != nil || p.Kind == "" {
			return nil, nil, lost(fmt.Errorf("HTTP status %d", resp.StatusCode))
		}
		err := sandbox.WithHint(sandbox.Errorf(p.Kind, "%s", p.Message), "%s", p.Hint)
		if p.RetryAfter > 0 {
			err = sandbox.WithRetryAfter(err, time.Duration(p.RetryAfter)*time.Second)
		}
		return nil, nil, err
	}
	return &readerConn{conn, r}, resp, nil
}

// DialPort connects to a port of a sandbox. ctx bounds only the dial. The caller
// closes the connection.
func (c Client) DialPort(ctx context.Context, id string, port int) (net.Conn, error) {
	conn, resp, err := c.ask(ctx, http.MethodPost, "/sandboxes/"+id+"/ports/"+strconv.Itoa(port), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		conn.Close()
		return nil, sandbox.Errorf(sandbox.Internal, "connect to port: HTTP status %d", resp.StatusCode)
	}
	return conn, nil
}

// SetNetwork changes the network policy of a sandbox.
func (c Client) SetNetwork(ctx context.Context, id string, n sandbox.Network) (sandbox.Sandbox, error) {
	conn, resp, err := c.ask(ctx, http.MethodPut, "/sandboxes/"+id+"/network", n)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer conn.Close()
	var sb sandbox.Sandbox
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&sb); err != nil {
		return sandbox.Sandbox{}, sandbox.Errorf(sandbox.Unavailable, "read answer: %w", err)
	}
	return sb, nil
}

// Link makes a link to the process's dashboard, for the principal of the token of that
// name, or of the usual one.
func (c Client) Link(ctx context.Context, token string) (Link, error) {
	conn, resp, err := c.ask(ctx, http.MethodPost, "/dashboard/links", linkRequest{token})
	if err != nil {
		return Link{}, err
	}
	defer conn.Close()
	var l Link
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxMessage)).Decode(&l); err != nil {
		return Link{}, sandbox.Errorf(sandbox.Unavailable, "read answer: %w", err)
	}
	return l, nil
}
