package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// tasks are the tasks of the fixtures. Unlike the tasks of runs, they are kept here
// and may ask for input.
type tasks struct {
	ctx context.Context // ends with the server

	mu   sync.Mutex
	byID map[string]*fixtureTask
}

var _ task.Source = (*tasks)(nil)

func newTasks(ctx context.Context) *tasks {
	return &tasks{ctx: ctx, byID: map[string]*fixtureTask{}}
}

// A fixtureTask is one task; key is the key of its owner's identity.
type fixtureTask struct {
	key    string
	end    context.CancelFunc
	heard  chan struct{} // buffered signal: an answer has arrived
	mu     sync.Mutex
	wire   task.Result
	asked  mcp.InputRequestMap
	answer map[string]json.RawMessage
}

func (f *tasks) find(id auth.Identity, taskID string) (*fixtureTask, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.byID[taskID]; t != nil && t.key == id.Key() {
		return t, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no task %q", taskID)
}

// Get implements [task.Source].
func (f *tasks) Get(_ context.Context, id auth.Identity, taskID string) (*task.Result, error) {
	t, err := f.find(id, taskID)
	if err != nil {
		return nil, err
	}
	return t.get(), nil
}

// Cancel implements [task.Source].
func (f *tasks) Cancel(_ context.Context, id auth.Identity, taskID string) error {
	t, err := f.find(id, taskID)
	if err != nil {
		return err
	}
	t.end()
	return nil
}

// Update implements [task.Source].
func (f *tasks) Update(_ context.Context, id auth.Identity, taskID string, answers map[string]json.RawMessage) error {
	t, err := f.find(id, taskID)
	if err != nil {
		return err
	}
	t.update(answers)
	return nil
}

// start makes a task. The result of work becomes the task's result.
func (f *tasks) start(ctx context.Context, slot *task.Slot, work func(ctx context.Context, t *fixtureTask) (*mcp.CallToolResult, error)) (*mcp.CallToolResult, error) {
	id, _ := auth.FromContext(ctx)
	workCtx, end := context.WithCancel(f.ctx)
	now := time.Now()
	t := &fixtureTask{
		key:    id.Key(),
		end:    end,
		heard:  make(chan struct{}, 1),
		wire:   *task.NewResult("task_"+rand.Text(), task.Working, now, now),
		answer: map[string]json.RawMessage{},
	}
	f.mu.Lock()
	f.byID[t.wire.TaskID] = t
	f.mu.Unlock()
	slot.Becomes(t.wire.TaskID, now)
	go func() {
		defer end()
		res, err := work(workCtx, t)
		t.finish(res, err, workCtx.Err() != nil)
	}()
	return &mcp.CallToolResult{}, nil
}

func (t *fixtureTask) finish(res *mcp.CallToolResult, err error, cancelled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = nil
	t.wire.Updated = time.Now().UTC()
	switch {
	case cancelled:
		t.wire.Status = task.Cancelled
	case err != nil:
		t.wire.Status = task.Failed
		t.wire.Error = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	default:
		t.wire.Status = task.Completed
		t.wire.Result = res
	}
}

func (t *fixtureTask) get() *task.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	wire := t.wire
	wire.InputRequests = maps.Clone(t.asked)
	return &wire
}

// update stores the answers to pending questions and ignores other answers.
func (t *fixtureTask) update(answers map[string]json.RawMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range answers {
		if _, ok := t.asked[key]; ok {
			t.answer[key] = a
			delete(t.asked, key)
		}
	}
	select {
	case t.heard <- struct{}{}:
	default:
	}
}

// ask waits for the answers to all of the questions.
func (t *fixtureTask) ask(ctx context.Context, questions mcp.InputRequestMap) (map[string]json.RawMessage, error) {
	t.mu.Lock()
	t.asked = maps.Clone(questions)
	t.wire.Status, t.wire.Updated = task.InputRequired, time.Now().UTC()
	t.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.heard:
		}
		t.mu.Lock()
		if len(t.asked) == 0 {
			t.wire.Status, t.wire.Updated = task.Working, time.Now().UTC()
			defer t.mu.Unlock()
			return maps.Clone(t.answer), nil
		}
		t.mu.Unlock()
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fixtures returns tools that become tasks if the client supports tasks.
func (f *tasks) fixtures() []fixture {
	// required wraps a tool that only works as a task.
	required := func(work func(ctx context.Context, t *fixtureTask) (*mcp.CallToolResult, error)) mcp.ToolHandler {
		return func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			slot := task.SlotOf(ctx)
			if slot == nil {
				return nil, task.ErrNotDeclared()
			}
			return f.start(ctx, slot, work)
		}
	}
	// optional wraps a tool that does nothing if the client does not support
	// tasks.
	optional := func(work func(ctx context.Context, t *fixtureTask) (*mcp.CallToolResult, error)) mcp.ToolHandler {
		return func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			slot := task.SlotOf(ctx)
			if slot == nil {
				return answer("nobody can be asked, so nothing is done"), nil
			}
			return f.start(ctx, slot, work)
		}
	}
	return []fixture{
		{name: "greet", description: "Greets, and is never a task.",
			run: func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in struct{ Name string }
				if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
					return nil, err
				}
				return answer("Hello, %s!", in.Name), nil
			}},
		{name: "slow_compute", description: "Takes its time.",
			run: func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in struct {
					Seconds float64
					Label   string
				}
				if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
					return nil, err
				}
				compute := func(ctx context.Context) (*mcp.CallToolResult, error) {
					if err := pause(ctx, time.Duration(in.Seconds*float64(time.Second))); err != nil {
						return nil, err
					}
					return answer("computed %s", in.Label), nil
				}
				slot := task.SlotOf(ctx)
				if slot == nil {
					return compute(ctx)
				}
				return f.start(ctx, slot, func(ctx context.Context, _ *fixtureTask) (*mcp.CallToolResult, error) { return compute(ctx) })
			}},
		{name: "failing_job", description: "Fails as a tool does.",
			run: required(func(ctx context.Context, _ *fixtureTask) (*mcp.CallToolResult, error) {
				res := answer("it failed")
				res.IsError = true
				return res, pause(ctx, time.Second)
			})},
		{name: "protocol_error_job", description: "Fails as the protocol does.",
			run: required(func(context.Context, *fixtureTask) (*mcp.CallToolResult, error) {
				return nil, fmt.Errorf("it broke")
			})},
		{name: "confirm_delete", description: "Asks before it is done.",
			run: optional(func(ctx context.Context, t *fixtureTask) (*mcp.CallToolResult, error) {
				answers, err := t.ask(ctx, mcp.InputRequestMap{"confirm": ask("Delete it?", "confirm", "boolean")})
				if err != nil {
					return nil, err
				}
				return answer("the user said %s", answers["confirm"]), nil
			})},
		{name: "multi_input", description: "Asks two things at once.",
			run: optional(func(ctx context.Context, t *fixtureTask) (*mcp.CallToolResult, error) {
				answers, err := t.ask(ctx, mcp.InputRequestMap{
					"first":  ask("The first?", "value", "string"),
					"second": ask("The second?", "value", "string"),
				})
				if err != nil {
					return nil, err
				}
				return answer("the user said %s and %s", answers["first"], answers["second"]), nil
			})},
		{name: "test_tool_with_task", description: "Asks for a name, then becomes a task.",
			run: func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				slot := task.SlotOf(ctx)
				if slot == nil {
					return nil, task.ErrNotDeclared()
				}
				got, ok := accepted(req.Params.InputResponses, "user_name")
				if !ok {
					return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"user_name": ask("What is your name?", "name", "string")}}, nil
				}
				return f.start(ctx, slot, func(context.Context, *fixtureTask) (*mcp.CallToolResult, error) {
					return answer("Hello, %v!", got["name"]), nil
				})
			}},
	}
}
