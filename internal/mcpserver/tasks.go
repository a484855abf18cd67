package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// This file implements the Tasks extension (SEP-2663). If a client declares the
// extension, a long run becomes a task. The client polls the task and need not
// keep a request open.
//
// The task of a run is the run itself: both have the same id, and the engine has
// all its state. So tasks survive disconnects and restarts, as runs do.

const tasksExtension = "io.modelcontextprotocol/tasks"

const (
	// taskAfter is how long a call waits for its run before the call becomes a
	// task.
	taskAfter = 2 * time.Second
	// taskTTL is how long a task exists at least after its end. Engines keep runs
	// longer.
	taskTTL = time.Hour
	// taskPoll is the polling interval that clients are asked to use.
	taskPoll = time.Second
)

// The states of a task.
const (
	taskWorking       = "working"
	taskInputRequired = "input_required"
	taskCompleted     = "completed"
	taskFailed        = "failed"
	taskCancelled     = "cancelled"
)

// A taskResult is a task on the wire. A new task has no result; tasks/get adds
// the result of a finished task.
type taskResult struct {
	mcp.ResultBase
	ResultType    string              `json:"resultType"`
	TaskID        string              `json:"taskId"`
	Status        string              `json:"status"`
	Created       time.Time           `json:"createdAt"`
	Updated       time.Time           `json:"lastUpdatedAt"`
	TTL           int64               `json:"ttlMs"`
	Poll          int64               `json:"pollIntervalMs"`
	Result        *mcp.CallToolResult `json:"result,omitempty"`
	Error         *jsonrpc.Error      `json:"error,omitempty"`
	InputRequests mcp.InputRequestMap `json:"inputRequests,omitempty"`
}

// newTaskResult returns the part that all answers about a task have in common.
func newTaskResult(id, status string, created, updated time.Time) *taskResult {
	return &taskResult{
		ResultType: "complete",
		TaskID:     id,
		Status:     status,
		Created:    created.UTC(),
		Updated:    updated.UTC(),
		TTL:        taskTTL.Milliseconds(),
		Poll:       taskPoll.Milliseconds(),
	}
}

// A taskAck acknowledges tasks/cancel and tasks/update.
type taskAck struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// taskParams are the parameters of all task methods.
type taskParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses"`
}

// A taskSlot receives the task if a call becomes one.
type taskSlot struct{ task *taskResult }

type taskSlotKey struct{}

// taskSlotOf returns the call's slot, or nil if its client does not support
// tasks.
func taskSlotOf(ctx context.Context) *taskSlot {
	slot, _ := ctx.Value(taskSlotKey{}).(*taskSlot)
	return slot
}

// becomes stores a new task in the slot.
func (t *taskSlot) becomes(id string, created time.Time) {
	t.task = newTaskResult(id, taskWorking, created, time.Now())
	t.task.ResultType = "task"
}

// declaresTasks reports whether a request's _meta declares support for tasks.
func declaresTasks(meta map[string]any) bool {
	caps, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := caps["extensions"].(map[string]any)
	_, ok := extensions[tasksExtension]
	return ok
}

// needsTasks is the error for a client that does not support tasks.
func needsTasks() error {
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "this needs a client that declares " + tasksExtension,
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	}
}

// withTasks replaces the result of a call that became a task by the task.
func withTasks(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method != "tools/call" || !declaresTasks(req.GetParams().GetMeta()) {
			return next(ctx, method, req)
		}
		slot := &taskSlot{}
		res, err := next(context.WithValue(ctx, taskSlotKey{}, slot), method, req)
		if err == nil && slot.task != nil {
			return slot.task, nil
		}
		return res, err
	}
}

// The task methods.
const (
	methodGetTask    = "tasks/get"
	methodCancelTask = "tasks/cancel"
	methodUpdateTask = "tasks/update"
)

func isTaskMethod(method string) bool {
	return method == methodGetTask || method == methodCancelTask || method == methodUpdateTask
}

// addTasks registers the task methods.
func (s *Server) addTasks() error {
	method := func(name string, do func(ctx context.Context, id auth.Identity, p *taskParams) (mcp.Result, error)) error {
		return mcp.AddReceivingCustomMethod(s.mcp, name, func(ctx context.Context, ss *mcp.ServerSession, p *taskParams) (mcp.Result, error) {
			if p == nil || !declaresTasks(p.GetMeta()) {
				return nil, needsTasks()
			}
			id, ok := auth.FromContext(ctx)
			if !ok || !id.Can(auth.ScopeRun) {
				return nil, unknownTask(p.TaskID)
			}
			ctx, end, err := s.begin(ctx, ss.ID(), id)
			if err != nil {
				return nil, s.protocolError("", err)
			}
			defer end()
			ctx, leave := s.ledgers.enter(ctx, nil)
			defer leave()
			res, err := do(ctx, id, p)
			if err == nil {
				err = ledgerOf(ctx).grown(ctx, id.Principal, res)
			}
			if errors.Is(err, sandbox.NotFound) {
				return nil, unknownTask(p.TaskID)
			}
			if err != nil {
				return nil, s.protocolError("", err)
			}
			return res, nil
		})
	}
	return errors.Join(
		method(methodGetTask, func(ctx context.Context, id auth.Identity, p *taskParams) (mcp.Result, error) {
			if t := s.fixtureTasks.find(id, p.TaskID); t != nil {
				return t.get(), nil
			}
			return s.getTask(ctx, id.Principal, p.TaskID)
		}),
		method(methodCancelTask, func(ctx context.Context, id auth.Identity, p *taskParams) (mcp.Result, error) {
			if t := s.fixtureTasks.find(id, p.TaskID); t != nil {
				t.cancel()
				return &taskAck{ResultType: "complete"}, nil
			}
			_, err := s.engine.StopRun(ctx, id.Principal, p.TaskID)
			return &taskAck{ResultType: "complete"}, err
		}),
		method(methodUpdateTask, func(ctx context.Context, id auth.Identity, p *taskParams) (mcp.Result, error) {
			if t := s.fixtureTasks.find(id, p.TaskID); t != nil {
				t.update(p.InputResponses)
				return &taskAck{ResultType: "complete"}, nil
			}
			// A run asks its client for nothing, so acknowledge the answer and
			// ignore it.
			_, err := s.getTask(ctx, id.Principal, p.TaskID)
			return &taskAck{ResultType: "complete"}, err
		}),
	)
}

// unknownTask is the error for a task that does not exist.
func unknownTask(id string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no task " + show(id)}
}

// getTask returns a run as a task.
func (s *Server) getTask(ctx context.Context, p sandbox.Principal, runID string) (*taskResult, error) {
	// A wait with timeout 0 returns the run's current state.
	run, err := s.wait(ctx, call{principal: p, req: &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{}}}, runID, 0)
	if err != nil {
		return nil, err
	}
	if run.Status != sandbox.RunFinished {
		return newTaskResult(run.ID, taskWorking, run.Started, time.Now()), nil
	}
	t := newTaskResult(run.ID, taskCompleted, run.Started, run.Ended)
	if run.Verdict.Code == sandbox.Cancelled {
		t.Status = taskCancelled
		return t, nil
	}
	t.Result, err = s.show(ctx, call{principal: p}, run, 0)
	return t, err
}
