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

// The Tasks extension (SEP-2663). A client that declares it gets a task for a
// run that does not end soon, and asks for it now and then instead of holding a
// request open. A run's task is the run itself: its id is the run's, and what
// there is to know of it is asked of the engine, so tasks outlive connections
// and restarts as runs do.

const tasksExtension = "io.modelcontextprotocol/tasks"

const (
	// taskAfter is how long a call waits for its run before it becomes a
	// task.
	taskAfter = 2 * time.Second
	// taskTTL is how long after its end a task can be asked for at least.
	// Engines keep runs for longer.
	taskTTL = time.Hour
	// taskPoll is how often a client is asked to ask.
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

// A taskResult is a task on the wire: new, and then without what it came to, or
// as tasks/get gives it.
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

// newTaskResult is a task as every answer about it begins.
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

// A taskAck says that a task heard what it was told.
type taskAck struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// taskParams are the parameters of all methods of tasks.
type taskParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses"`
}

// A taskSlot is where a call leaves the task that it becomes.
type taskSlot struct{ task *taskResult }

type taskSlotKey struct{}

// taskSlotOf returns the call's slot, or nil if its client takes no tasks.
func taskSlotOf(ctx context.Context) *taskSlot {
	slot, _ := ctx.Value(taskSlotKey{}).(*taskSlot)
	return slot
}

// becomes leaves a task in the slot.
func (t *taskSlot) becomes(id string, created time.Time) {
	t.task = newTaskResult(id, taskWorking, created, time.Now())
	t.task.ResultType = "task"
}

// declaresTasks reports whether a request's _meta says that its client takes
// tasks.
func declaresTasks(meta map[string]any) bool {
	caps, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := caps["extensions"].(map[string]any)
	_, ok := extensions[tasksExtension]
	return ok
}

// needsTasks is the error for a client that takes no tasks.
func needsTasks() error {
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "this needs a client that declares " + tasksExtension,
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	}
}

// withTasks answers a call that has become a task with the task.
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

// The methods of tasks.
const (
	methodGetTask    = "tasks/get"
	methodCancelTask = "tasks/cancel"
	methodUpdateTask = "tasks/update"
)

func isTaskMethod(method string) bool {
	return method == methodGetTask || method == methodCancelTask || method == methodUpdateTask
}

// addTasks registers the methods of tasks.
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
			res, err := do(ctx, id, p)
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
			// A run asks its client for nothing; an answer that no question
			// was asked for is heard, and that is all.
			_, err := s.getTask(ctx, id.Principal, p.TaskID)
			return &taskAck{ResultType: "complete"}, err
		}),
	)
}

// unknownTask is the error for a task that there is not.
func unknownTask(id string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no task " + show(id)}
}

// getTask returns a run as a task.
func (s *Server) getTask(ctx context.Context, p sandbox.Principal, runID string) (*taskResult, error) {
	// Waiting no time tells how the run stands.
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
