package task

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A Slot receives the task if a call becomes one.
type Slot struct{ task *Result }

type slotKey struct{}

// SlotOf returns the call's slot, or nil if its client does not support tasks.
func SlotOf(ctx context.Context) *Slot {
	slot, _ := ctx.Value(slotKey{}).(*Slot)
	return slot
}

// Becomes puts a new task into the slot. The result of the call is then ignored.
func (s *Slot) Becomes(id string, created time.Time) {
	s.task = NewResult(id, Working, created, time.Now())
	s.task.ResultType = "task"
}

// WithSlot replaces the result of a call that became a task by the task.
func WithSlot(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method != "tools/call" || !Declared(req.GetParams().GetMeta()) {
			return next(ctx, method, req)
		}
		slot := &Slot{}
		res, err := next(context.WithValue(ctx, slotKey{}, slot), method, req)
		if err == nil && slot.task != nil {
			return slot.task, nil
		}
		return res, err
	}
}
