package task

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// Extension is the name of the extension in the capabilities of clients and
// servers.
const Extension = "io.modelcontextprotocol/tasks"

const (
	// ttl is how long a task exists at least after its end. Engines keep runs
	// longer.
	ttl = time.Hour
	// poll is the polling interval that clients are asked to use.
	poll = time.Second
)

// The task methods.
const (
	MethodGet    = "tasks/get"
	MethodCancel = "tasks/cancel"
	MethodUpdate = "tasks/update"
)

// IsMethod reports whether a method of the protocol is a task method.
func IsMethod(method string) bool {
	return method == MethodGet || method == MethodCancel || method == MethodUpdate
}

// A Status is the state of a task.
type Status string

// The states of a task.
const (
	Working       Status = "working"
	InputRequired Status = "input_required"
	Completed     Status = "completed"
	Failed        Status = "failed"
	Cancelled     Status = "cancelled"
)

// A Result is a task on the wire. A new task has no result; tasks/get adds the
// result of a finished task.
type Result struct {
	mcp.ResultBase
	ResultType    string              `json:"resultType"`
	TaskID        string              `json:"taskId"`
	Status        Status              `json:"status"`
	Created       time.Time           `json:"createdAt"`
	Updated       time.Time           `json:"lastUpdatedAt"`
	TTL           int64               `json:"ttlMs"`
	Poll          int64               `json:"pollIntervalMs"`
	Result        *mcp.CallToolResult `json:"result,omitempty"`
	Error         *jsonrpc.Error      `json:"error,omitempty"`
	InputRequests mcp.InputRequestMap `json:"inputRequests,omitempty"`
}

// NewResult returns the part that all answers about a task have in common.
func NewResult(id string, status Status, created, updated time.Time) *Result {
	return &Result{
		ResultType: "complete",
		TaskID:     id,
		Status:     status,
		Created:    created.UTC(),
		Updated:    updated.UTC(),
		TTL:        ttl.Milliseconds(),
		Poll:       poll.Milliseconds(),
	}
}

// An Ack acknowledges tasks/cancel and tasks/update.
type Ack struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// Params are the parameters of all task methods.
type Params struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses"`
}

// A Source has tasks. A task that does not exist, or belongs to another identity,
// gives an error wrapping [sandbox.NotFound].
type Source interface {
	Get(ctx context.Context, id auth.Identity, taskID string) (*Result, error)
	// Cancel ends a task. It is idempotent.
	Cancel(ctx context.Context, id auth.Identity, taskID string) error
	// Update gives a task the answers to its input requests. It ignores other
	// answers.
	Update(ctx context.Context, id auth.Identity, taskID string, answers map[string]json.RawMessage) error
}

// Declared reports whether a request's _meta declares support for tasks.
func Declared(meta map[string]any) bool {
	caps, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := caps["extensions"].(map[string]any)
	_, ok := extensions[Extension]
	return ok
}

// ErrNotDeclared returns the error for a client that does not support tasks.
func ErrNotDeclared() error {
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "this needs a client that declares " + Extension,
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + Extension + `":{}}}}`),
	}
}
