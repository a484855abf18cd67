package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/argument"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// This file answers the task methods. The task of a run is the run itself: both
// have the same id, and the engine has all its state. So tasks survive disconnects
// and restarts, as runs do.

// addTasks registers the task methods.
func (s *Server) addTasks() error {
	method := func(name string, do func(ctx context.Context, from task.Source, id auth.Identity, p *task.Params) (mcp.Result, error)) error {
		return mcp.AddReceivingCustomMethod(s.mcp, name, func(ctx context.Context, ss *mcp.ServerSession, p *task.Params) (mcp.Result, error) {
			if p == nil || !task.Declared(p.GetMeta()) {
				return nil, task.ErrNotDeclared()
			}
			id, ok := auth.FromContext(ctx)
			if !ok || !id.Can(auth.ScopeRun) {
				return nil, unknownTask(p.TaskID)
			}
			ctx, end, err := s.transport.Begin(ctx, id, ss.ID(), nil)
			if err != nil {
				return nil, s.protocolError("", err)
			}
			defer end()
			var res mcp.Result
			for _, from := range s.taskSources() {
				if res, err = do(ctx, from, id, p); !errors.Is(err, sandbox.NotFound) {
					break
				}
			}
			if err == nil {
				err = grown(ctx, id.Principal, res)
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
		method(task.MethodGet, func(ctx context.Context, from task.Source, id auth.Identity, p *task.Params) (mcp.Result, error) {
			return from.Get(ctx, id, p.TaskID)
		}),
		method(task.MethodCancel, func(ctx context.Context, from task.Source, id auth.Identity, p *task.Params) (mcp.Result, error) {
			return &task.Ack{ResultType: "complete"}, from.Cancel(ctx, id, p.TaskID)
		}),
		method(task.MethodUpdate, func(ctx context.Context, from task.Source, id auth.Identity, p *task.Params) (mcp.Result, error) {
			return &task.Ack{ResultType: "complete"}, from.Update(ctx, id, p.TaskID, p.InputResponses)
		}),
	)
}

// taskSources returns the sources of tasks, in the order in which they are asked.
func (s *Server) taskSources() []task.Source {
	if e := s.opts.Extension; e != nil {
		return []task.Source{e.Tasks, runTasks{s}}
	}
	return []task.Source{runTasks{s}}
}

// unknownTask is the error for a task that does not exist.
func unknownTask(id string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no task " + argument.Show(id)}
}

// runTasks are the runs of an engine as tasks.
type runTasks struct{ server *Server }

// Get implements [task.Source].
func (r runTasks) Get(ctx context.Context, id auth.Identity, runID string) (*task.Result, error) {
	// A wait with timeout 0 returns the run's current state.
	c := call{principal: id.Principal, req: &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{}}}
	run, err := r.server.wait(ctx, c, runID, patience{})
	if err != nil {
		return nil, err
	}
	r.server.grace.Claim(id.Principal, run.ID)
	if run.Status != sandbox.RunFinished {
		return task.NewResult(run.ID, task.Working, run.Started, time.Now()), nil
	}
	t := task.NewResult(run.ID, task.Completed, run.Started, run.Ended)
	if run.Verdict.Code == sandbox.Cancelled {
		t.Status = task.Cancelled
		return t, nil
	}
	t.Result, err = r.server.show(ctx, c, run, 0, "")
	return t, err
}

// Cancel implements [task.Source].
func (r runTasks) Cancel(ctx context.Context, id auth.Identity, runID string) error {
	_, err := r.server.engine.StopRun(ctx, id.Principal, runID)
	return err
}

// Update implements [task.Source]. A run asks its client for nothing, so Update
// only checks that the run exists.
func (r runTasks) Update(ctx context.Context, id auth.Identity, runID string, _ map[string]json.RawMessage) error {
	_, err := r.Get(ctx, id, runID)
	return err
}
