package guestapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// maxEventLine bounds one event of a run, in bytes. The guest takes events of
	// 32 MiB from an interpreter, and adds previews of pictures.
	maxEventLine = 40 << 20
	// freeLine is the longest event that needs no room.
	freeLine = 1 << 20
	// maxLineTime bounds the wait for room, and then for the rest of an event.
	maxLineTime = time.Minute
)

// ErrLongEvent is the error of a stream with an event that is too long, that has
// no end, or that found no room.
var ErrLongEvent = errors.New("an event of the run is too long")

// codeEvents reads the events of code in a context, one line of JSON each.
type codeEvents struct {
	ctx      context.Context
	waiting  context.Context // ends with close
	stop     context.CancelFunc
	body     io.ReadCloser
	lines    *bufio.Reader
	room     LineRoom // nil if there is always room
	patience time.Duration

	mu   sync.Mutex
	give func() // gives back the room of the last event; nil if it took none
}

func newCodeEvents(ctx context.Context, body io.ReadCloser, room LineRoom) *codeEvents {
	x := &codeEvents{ctx: ctx, body: body, lines: bufio.NewReaderSize(body, frameSize), room: room, patience: maxLineTime}
	x.waiting, x.stop = context.WithCancel(ctx)
	return x
}

const opExecute = "execute code"

// Execute runs code in a context and returns the stream of its events, which the
// caller closes. The end of ctx, or Close, interrupts the run unless it is kept.
//
// A long event takes room before it is read, and gives it back at the next call
// of Next or Close. A nil room always has room.
func (c *Client) Execute(ctx context.Context, user string, req *ExecuteRequest, room LineRoom) (*Events, error) {
	resp, err := c.sendJSON(ctx, opExecute, http.MethodPost, PathExecute, user, req)
	if err != nil {
		return nil, err
	}
	return &Events{source: newCodeEvents(ctx, resp.Body, room)}, nil
}

func (x *codeEvents) next() (*Event, error) {
	x.giveBack()
	line, err := x.line()
	if err == nil {
		var ev *ExecuteEvent
		if ev, err = DecodeExecuteEvent(line); err == nil && ev != nil {
			return ofCode(ev), nil
		}
	}
	x.giveBack()
	if err != nil {
		return nil, lost(x.ctx, opExecute, err)
	}
	return nil, nil
}

func (x *codeEvents) finish() {
	x.giveBack()
	drain(x.body, 1)
}

// line reads one line, of at most maxEventLine bytes. The memory that a guest
// can take is bounded by the room, not by the number of its streams.
func (x *codeEvents) line() ([]byte, error) {
	line, err := x.lines.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, endOfLines(err)
	}
	var late atomic.Bool
	end := time.AfterFunc(x.patience, func() {
		late.Store(true)
		x.body.Close()
	})
	defer end.Stop()
	long, roomy := bytes.Clone(line), x.room == nil
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = x.lines.ReadSlice('\n')
		n := len(long) + len(line)
		if n > maxEventLine {
			return nil, fmt.Errorf("%w: it exceeds %d bytes", ErrLongEvent, maxEventLine)
		}
		if n > freeLine && !roomy {
			end.Stop()
			if err := x.takeRoom(); err != nil {
				return nil, err
			}
			end.Reset(x.patience)
			roomy = true
		}
		if n > cap(long) {
			long = slices.Grow(long, min(2*n, maxEventLine)-len(long))
		}
		long = append(long, line...)
	}
	if err != nil && late.Load() {
		return nil, fmt.Errorf("%w: it was not whole after %v", ErrLongEvent, x.patience)
	}
	return long, endOfLines(err)
}

func (x *codeEvents) takeRoom() error {
	ctx, cancel := context.WithTimeout(x.waiting, x.patience)
	defer cancel()
	give, err := x.room(ctx)
	if err != nil {
		return fmt.Errorf("%w: there was no room for it: %w", ErrLongEvent, err)
	}
	x.mu.Lock()
	closed := x.waiting.Err()
	if closed == nil {
		x.give = give
	}
	x.mu.Unlock()
	if closed != nil {
		give()
	}
	return closed
}

// giveBack gives back the room of the last event.
func (x *codeEvents) giveBack() {
	x.mu.Lock()
	give := x.give
	x.give = nil
	x.mu.Unlock()
	if give != nil {
		give()
	}
}

func endOfLines(err error) error {
	if err == io.EOF {
		return errTruncated
	}
	return err
}

func (x *codeEvents) close() error {
	x.stop()
	defer x.giveBack()
	return x.body.Close()
}

// sendJSON sends a request and returns its response if the status is 2xx.
func (c *Client) sendJSON(ctx context.Context, op, method, path, user string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "%s: encode request: %w", op, err)
		}
		if len(b) > MaxUnaryRequest {
			return nil, sandbox.Errorf(sandbox.Invalid, "%s: request of %d bytes exceeds %d", op, len(b), MaxUnaryRequest)
		}
		body = bytes.NewReader(b)
	}
	req, err := newRequest(ctx, method, path, body, user)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "%s: %w", op, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", ContentTypeUnary)
	}
	resp, err := c.do(op, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer closeBody(resp)
		return nil, answered(ctx, op, resp)
	}
	return resp, nil
}

// callJSON is sendJSON with a reply, which it decodes to out unless out is nil.
func (c *Client) callJSON(ctx context.Context, op, method, path, user string, in, out any) error {
	resp, err := c.sendJSON(ctx, op, method, path, user, in)
	if err != nil {
		return err
	}
	defer closeBody(resp)
	if out == nil {
		return nil
	}
	reply, err := readBounded(resp.Body, MaxUnaryResponse)
	if err != nil {
		return lost(ctx, op, err)
	}
	if err := json.Unmarshal(reply, out); err != nil {
		return lost(ctx, op, fmt.Errorf("decode reply: %w", err))
	}
	return nil
}

// CreateContext makes a context and waits until its interpreter is ready. The
// error is of kind NotFound if the sandbox lacks the language. It is Invalid if
// the language has no contexts, and Conflict if the ID is in use.
func (c *Client) CreateContext(ctx context.Context, user string, req *ContextRequest) (*Context, error) {
	out := new(Context)
	if err := c.callJSON(ctx, "create context", http.MethodPost, PathContexts, user, req, out); err != nil {
		return nil, err
	}
	return out, nil
}

// PrepareContext imports modules in a context that has had no run yet, and
// returns when they are imported. A module that fails is skipped. The error is
// of kind Conflict if the context has had a run, or if its language has no
// modules.
func (c *Client) PrepareContext(ctx context.Context, id string, modules []string) error {
	return c.callJSON(ctx, "prepare context", http.MethodPost, contextPath(id, "/prepare"), "", &PrepareRequest{Modules: modules}, nil)
}

// Contexts returns all contexts of the sandbox.
func (c *Client) Contexts(ctx context.Context) ([]Context, error) {
	var out contextList
	if err := c.callJSON(ctx, "list contexts", http.MethodGet, PathContexts, "", nil, &out); err != nil {
		return nil, err
	}
	return out, nil
}

// RemoveContext removes a context, and kills every process that it started.
func (c *Client) RemoveContext(ctx context.Context, id string) error {
	return c.callJSON(ctx, "remove context", http.MethodDelete, contextPath(id, ""), "", nil, nil)
}

// RestartContext ends a context's interpreter, and kills every process that it
// started. The next run starts another interpreter.
func (c *Client) RestartContext(ctx context.Context, id string) error {
	return c.callJSON(ctx, "restart context", http.MethodPost, contextPath(id, "/restart"), "", struct{}{}, nil)
}

// InterruptContext interrupts the run of a context; see InterruptRequest. The
// error is of kind Conflict if no run is under way.
func (c *Client) InterruptContext(ctx context.Context, id string, req *InterruptRequest) error {
	return c.callJSON(ctx, "interrupt context", http.MethodPost, contextPath(id, "/interrupt"), "", req, nil)
}

// ConnectExecution returns the stream of a kept run's events that no caller
// took, with room as for Execute. It ends the stream of another caller. The caller
// closes the stream. The error is of kind NotFound if the run is not known, or if
// its end was taken.
func (c *Client) ConnectExecution(ctx context.Context, tag string, room LineRoom) (*Events, error) {
	resp, err := c.sendJSON(ctx, opExecute, http.MethodPost, executionPath(tag, "/connect"), "", nil)
	if err != nil {
		return nil, err
	}
	return &Events{source: newCodeEvents(ctx, resp.Body, room)}, nil
}

// InterruptExecution interrupts a kept run, or removes it from the queue before
// its turn. It does nothing if the run has ended. The error is of kind NotFound
// if the run is not known.
func (c *Client) InterruptExecution(ctx context.Context, tag string, req *InterruptRequest) error {
	return c.callJSON(ctx, "interrupt run", http.MethodPost, executionPath(tag, "/interrupt"), "", req, nil)
}

// ExecutionInput gives input to a kept run. The error is of kind NotFound if the
// run is not known, and Conflict if it takes no input or has ended.
func (c *Client) ExecutionInput(ctx context.Context, tag string, req *InputRequest) error {
	return c.callJSON(ctx, "send input", http.MethodPost, executionPath(tag, "/input"), "", req, nil)
}

func executionPath(tag, rest string) string { return PathExecutions + "/" + url.PathEscape(tag) + rest }

// ContextInput gives input to the run of a context. The error is of kind
// Conflict if no run is under way, or if the run takes no input.
func (c *Client) ContextInput(ctx context.Context, id string, req *InputRequest) error {
	return c.callJSON(ctx, "send input", http.MethodPost, contextPath(id, "/input"), "", req, nil)
}

func contextPath(id, rest string) string { return PathContexts + "/" + url.PathEscape(id) + rest }
