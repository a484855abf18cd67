package mcpserver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// taskMeta is the _meta of a client that takes tasks.
var taskMeta = strings.Replace(modernMeta, `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1)

// A taskReply is what a method of tasks, or a call, answers.
type taskReply struct {
	Result struct {
		ResultType        string
		TaskID            string
		Status            task.Status
		TTLMs             int64
		PollIntervalMs    int64
		StructuredContent *answer.Run
		Result            *struct {
			StructuredContent answer.Run
			IsError           bool
		}
	}
	Error struct{ Code int64 }
}

// ask sends a request of a client that takes tasks.
func askTasks(t *testing.T, url, token, method, name, params string) taskReply {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,%s}}`, method, params, taskMeta)
	res := post(t, url+transport.StreamablePath, token, body, versionHeader, firstModern, "Mcp-Method", method, "Mcp-Name", name)
	var reply taskReply
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		line, _ := strings.CutPrefix(lines.Text(), "data: ")
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &reply); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	return reply
}

func TestTasks(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	start := func(script, more string) taskReply {
		t.Helper()
		return askTasks(t, url, "alice", "tools/call", "run_code", `"name":"run_code","arguments":{"code":"`+script+`"`+more+`}`)
	}
	get := func(id string) taskReply {
		t.Helper()
		return askTasks(t, url, "alice", task.MethodGet, id, `"taskId":"`+id+`"`)
	}

	if r := start("out 1", "").Result; r.ResultType != "complete" || r.StructuredContent == nil || r.StructuredContent.Stdout != "1\n" {
		t.Errorf("a short run: %+v, want its result", r)
	}
	if r := start("out 1\\nsleep 1h", `,"wait_seconds":0`).Result; r.ResultType != "complete" || r.StructuredContent == nil || r.StructuredContent.Status != sandbox.RunRunning {
		t.Errorf("a run that the caller waits for only so long: %+v, want it as it stands", r)
	}

	long := start(`out 1\nsleep 2500ms\nexit 3`, "")
	id := long.Result.TaskID
	if long.Result.ResultType != "task" || long.Result.Status != task.Working || !sandbox.ValidRunID(id) || long.Result.TTLMs <= 0 || long.Result.PollIntervalMs <= 0 {
		t.Fatalf("a longer run: %+v, want a task", long.Result)
	}
	eventually(t, "the task is done", func() bool { return get(id).Result.Status != task.Working })
	done := get(id).Result
	if done.Status != task.Completed || done.Result == nil || !done.Result.IsError || *done.Result.StructuredContent.ExitCode != 3 {
		t.Errorf("the task of a run that failed: %+v, want completed with its verdict", done)
	}

	id = start(`sleep 1h`, "").Result.TaskID
	if r := askTasks(t, url, "mallory", task.MethodGet, id, `"taskId":"`+id+`"`); r.Error.Code != -32602 {
		t.Errorf("tasks/get of another's task: %+v", r)
	}
	if r := askTasks(t, url, "mallory", task.MethodCancel, id, `"taskId":"`+id+`"`); r.Error.Code != -32602 {
		t.Errorf("tasks/cancel of another's task: %+v", r)
	}
	if r := askTasks(t, url, "alice/files", task.MethodGet, id, `"taskId":"`+id+`"`); r.Error.Code != -32602 {
		t.Errorf("tasks/get without the scope: %+v", r)
	}
	if r := get(id).Result; r.Status != task.Working || e.stopped() != 0 {
		t.Errorf("the task is %+v after others tried, want working", r)
	}
	for range 2 {
		if r := askTasks(t, url, "alice", task.MethodCancel, id, `"taskId":"`+id+`"`); r.Result.ResultType != "complete" {
			t.Errorf("tasks/cancel: %+v", r)
		}
	}
	if r := get(id).Result; r.Status != task.Cancelled || e.stopped() != 1 {
		t.Errorf("after tasks/cancel: %+v, %d runs stopped", r, e.stopped())
	}
	if r := askTasks(t, url, "alice", task.MethodUpdate, id, `"taskId":"`+id+`","inputResponses":{}`); r.Result.ResultType != "complete" {
		t.Errorf("tasks/update: %+v", r)
	}
	for _, unknown := range []string{"", "run_x", "task_x", "\\u0000"} {
		if r := get(unknown); r.Error.Code != -32602 && r.Error.Code != -32020 {
			t.Errorf("tasks/get of %q: %+v, want no such task", unknown, r)
		}
	}
}
