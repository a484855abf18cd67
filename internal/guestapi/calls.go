package guestapi

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// StartOptions are options of Start beside the request's body.
type StartOptions struct {
	User    string        // sandbox.User if empty
	Timeout time.Duration // 0 is no limit; see StartRequest
}

// Start starts a process and returns the stream of its events after the start
// event. The caller closes the stream. The end of ctx ends the stream, but not
// the process.
func (c *Client) Start(ctx context.Context, req *StartRequest, opts StartOptions) (*Events, error) {
	const op = "start process"
	if err := checkText(op, req); err != nil {
		return nil, err
	}
	s, err := c.open(ctx, op, ProcStart, opts.User, opts.Timeout, req)
	if err != nil {
		return nil, err
	}
	return startProcess(s)
}

// checkText returns an error for text that is not UTF-8, which JSON would alter.
func checkText(op string, req *StartRequest) error {
	p := &req.Process
	texts := append([]string{p.Cmd, p.Cwd, req.Tag}, p.Args...)
	for k, v := range p.Envs {
		texts = append(texts, k, v)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return sandbox.Errorf(sandbox.Invalid, "%s: command, environment or directory is not UTF-8", op)
		}
	}
	return nil
}

// Connect attaches to a process that was started before. The caller closes the
// stream.
func (c *Client) Connect(ctx context.Context, sel ProcessSelector) (*Events, error) {
	return c.Reconnect(ctx, sel, nil)
}

// Reconnect is Connect for a caller that has already saved a part of the output:
// see [ConnectRequest.Have]. If have is nil, it is Connect.
func (c *Client) Reconnect(ctx context.Context, sel ProcessSelector, have *OutputCounts) (*Events, error) {
	s, err := c.open(ctx, "connect to process", ProcConnect, "", 0, &ConnectRequest{Process: sel, Have: have})
	if err != nil {
		return nil, err
	}
	return startProcess(s)
}

// Processes returns the processes that callers started: see
// [ListProcessesResponse].
func (c *Client) Processes(ctx context.Context) ([]ProcessInfo, error) {
	var out ListProcessesResponse
	if err := c.call(ctx, "list processes", ProcList, "", struct{}{}, &out); err != nil {
		return nil, err
	}
	return out.Processes, nil
}

// maxInput bounds the input of one request, in bytes. SendInput splits more.
const maxInput = 1 << 20

// SendInput writes to a process's input, or to its terminal if pty is set.
func (c *Client) SendInput(ctx context.Context, sel ProcessSelector, data []byte, pty bool) error {
	for {
		part := data[:min(len(data), maxInput)]
		data = data[len(part):]
		req := SendInputRequest{Process: sel}
		if pty {
			req.Input.PTY = part
		} else {
			req.Input.Stdin = part
		}
		if err := c.call(ctx, "send input", ProcSendInput, "", &req, nil); err != nil {
			return err
		}
		if len(data) == 0 {
			return nil
		}
	}
}

// CloseStdin ends a process's input.
func (c *Client) CloseStdin(ctx context.Context, sel ProcessSelector) error {
	return c.call(ctx, "close input", ProcCloseStdin, "", &CloseStdinRequest{Process: sel}, nil)
}

// Signal signals a process; see SendSignalRequest.
func (c *Client) Signal(ctx context.Context, sel ProcessSelector, sig Signal) error {
	return c.call(ctx, "signal process", ProcSendSignal, "", &SendSignalRequest{Process: sel, Signal: sig}, nil)
}

// Resize sets the size of a process's terminal.
func (c *Client) Resize(ctx context.Context, sel ProcessSelector, size PTYSize) error {
	return c.call(ctx, "resize terminal", ProcUpdate, "", &UpdateRequest{Process: sel, PTY: &PTY{Size: &size}}, nil)
}
