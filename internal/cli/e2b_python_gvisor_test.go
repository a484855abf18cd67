//go:build linux && !nogvisor

package cli

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A pythonRequest is a request of E2B's Python package, and what it needs of the
// answer.
type pythonRequest struct {
	name         string
	method, path string
	body         string
	headers      []string
	status       int
	// need is JSON that the answer has: each of its members, with the same value.
	// A string that ends in "…" is the beginning of a value, and null is any value.
	need string
	// keep are the names under which later requests have members of the answer, as
	// {NAME}.
	keep map[string]string
}

// TestE2BPythonGvisor sends each kind of request that the Python packages e2b
// 2.34.0 and e2b-code-interpreter 2.9.1 make, synchronous and asynchronous, as
// recorded: they indent JSON, send null for what is not set, and have other
// headers than the JavaScript packages.
func TestE2BPythonGvisor(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	env := append(os.Environ(), "GLOVEBOX_DRIVER=gvisor", "GLOVEBOX_STATE_DIR="+t.TempDir(), "NO_COLOR=1")
	url := serveE2B(t, binary, env)
	p := &pythonClient{url: url, key: apiKey(t, binary, env, "alice"), kept: map[string]string{}}

	p.send(t, pythonControl()...)
	// First what looks at the list of processes: killed ones leave it a little later.
	t.Run("code interpreter", func(t *testing.T) {
		if _, err := os.Stat("/usr/bin/python3"); err != nil {
			t.Skip("sandboxes have no Python")
		}
		p.send(t, pythonInterpreter()...)
	})
	t.Run("commands", func(t *testing.T) {
		p.program(t)
		p.terminal(t)
		p.send(t, pythonCommands()...)
	})
	t.Run("files", func(t *testing.T) { p.send(t, pythonFiles()...) })
	t.Run("watches", func(t *testing.T) { p.watch(t) })
	t.Run("end", func(t *testing.T) {
		p.send(t,
			pythonRequest{name: "pause", method: "POST", path: "/sandboxes/{id}/pause", body: `{"memory":true}`, status: 204},
			pythonRequest{name: "pause again", method: "POST", path: "/sandboxes/{id}/pause", body: `{"memory":true}`, status: 409},
			pythonRequest{name: "info of a paused one", method: "GET", path: "/sandboxes/{id}", status: 200, need: `{"state": "paused"}`},
			pythonRequest{name: "resume", method: "POST", path: "/sandboxes/{id}/connect", body: `{"timeout":300}`, status: 201, need: `{"sandboxID": "{id}", "envdAccessToken": "{access}"}`},
			pythonRequest{name: "pause without memory", method: "POST", path: "/sandboxes/{id}/pause", body: `{"memory":false}`, status: 204},
			pythonRequest{name: "resume without memory", method: "POST", path: "/sandboxes/{id}/connect", body: `{"timeout":300}`, status: 201, need: `{"sandboxID": "{id}", "envdAccessToken": "{access}"}`},
			pythonRequest{name: "kill", method: "DELETE", path: "/sandboxes/{id}", status: 204},
			pythonRequest{name: "kill again", method: "DELETE", path: "/sandboxes/{id}", status: 404, need: `{"code": 404, "message": null}`},
			pythonRequest{name: "is_running of an ended one", method: "GET", path: "/health", headers: envd, status: 502})
	})
}

// pythonControl are the requests of the control plane.
func pythonControl() []pythonRequest {
	return []pythonRequest{
		{name: "create", method: "POST", path: "/sandboxes", status: 201,
			body: `{"templateID":"base","allow_internet_access":true,"autoPause":true,"autoPauseMemory":true,"autoResume":{"enabled":true},"envVars":{"A":"b"},"metadata":{"tag":"py"},"secure":true,"timeout":86400}`,
			need: `{"sandboxID": "sbx…", "templateID": "base", "clientID": null, "envdVersion": "0.…", "envdAccessToken": null, "domain": null, "trafficAccessToken": null}`,
			keep: map[string]string{"id": "sandboxID", "access": "envdAccessToken", "traffic": "trafficAccessToken"}},
		{name: "info", method: "GET", path: "/sandboxes/{id}", status: 200,
			need: `{"sandboxID": "{id}", "templateID": "base", "alias": "base", "state": "running", "metadata": {"tag": "py"}, "envdVersion": "0.…", "startedAt": "20…", "endAt": "20…", "cpuCount": null, "memoryMB": null, "diskSizeMB": null, "clientID": null, "lifecycle": {"autoResume": true, "onTimeout": "pause"}}`},
		{name: "list", method: "GET", path: "/v2/sandboxes?metadata=tag%3Dpy&state=running%2Cpaused", status: 200,
			need: `[{"sandboxID": "{id}", "templateID": "base", "state": "running", "metadata": {"tag": "py"}, "startedAt": "20…", "endAt": "20…", "cpuCount": null, "memoryMB": null, "diskSizeMB": null, "envdVersion": null, "clientID": null}]`},
		{name: "connect", method: "POST", path: "/sandboxes/{id}/connect", body: `{"timeout":300}`, status: 200, need: `{"sandboxID": "{id}", "envdAccessToken": "{access}"}`},
		{name: "set_timeout", method: "POST", path: "/sandboxes/{id}/timeout", body: `{"timeout":200}`, status: 204},
		{name: "get_metrics", method: "GET", path: "/sandboxes/{id}/metrics", status: 200,
			need: `[{"timestamp": "20…", "cpuCount": null, "cpuUsedPct": null, "memUsed": null, "memTotal": null, "diskUsed": null, "diskTotal": null}]`},
		{name: "update_network", method: "PUT", path: "/sandboxes/{id}/network", body: `{"denyOut":["0.0.0.0/0"]}`, status: 204},
		{name: "alias_exists", method: "GET", path: "/templates/aliases/base", status: 200, need: `{"templateID": null, "public": null}`},
		{name: "alias_exists of none", method: "GET", path: "/templates/aliases/none__abc", status: 404},
		{name: "is_running", method: "GET", path: "/health", headers: envd, status: 204},
	}
}

// Headers of requests to the agent, to a stream of its, and to the interpreter.
var (
	envd    = []string{"E2b-Sandbox-Id", "{id}", "E2b-Sandbox-Port", "49983", "X-Access-Token", "{access}"}
	unary   = slices.Concat(envd, []string{"Connect-Protocol-Version", "1", "Content-Encoding", "identity", "Content-Type", "application/json"})
	streams = slices.Concat(envd, []string{"Connect-Protocol-Version", "1", "Connect-Content-Encoding", "identity", "Content-Type", "application/connect+json", "Keepalive-Ping-Interval", "50"})
	minute  = slices.Concat(streams, []string{"Connect-Timeout-Ms", "60000"})
	jupyter = []string{"E2b-Sandbox-Id", "{id}", "E2b-Sandbox-Port", "49999", "E2b-Traffic-Access-Token", "{traffic}", "Content-Type", "application/json"}
)

// command is the body that runs a command.
func command(script, more string) string {
	return "{\n  \"process\": {\n    \"cmd\": \"/bin/bash\",\n    \"args\": [\n      \"-l\",\n      \"-c\",\n      \"" + script + "\"\n    ]" + more + "\n  },\n  \"stdin\": false\n}"
}

// pythonCommands are the requests of commands and terminals. The answer of a
// stream is the list of its messages, with output put together.
func pythonCommands() []pythonRequest {
	root := slices.Concat(minute, []string{"Authorization", "Basic cm9vdDo="})
	day := slices.Concat(streams, []string{"Connect-Timeout-Ms", "86400000.0"})
	return []pythonRequest{
		{name: "run", method: "POST", path: "/process.Process/Start", headers: root, status: 200,
			body: command("id -un; pwd; echo $X; echo err >&2", ",\n    \"envs\": {\n      \"X\": \"y\"\n    },\n    \"cwd\": \"/tmp\""),
			need: `{"stdout": "root\n/tmp\ny\n", "stderr": "err\n", "end": {"exited": true, "status": "exit status 0"}}`},
		{name: "run without a timeout", method: "POST", path: "/process.Process/Start", headers: streams, status: 200,
			body: command("id -un; pwd; echo $A", ""), need: `{"stdout": "user\n/home/user\nb\n", "end": {"exited": true}}`},
		{name: "run for a day", method: "POST", path: "/process.Process/Start", headers: day, status: 200,
			body: command("exit 3", ""), need: `{"end": {"exitCode": 3, "exited": true, "status": "exit status 3"}}`},
		{name: "run too long", method: "POST", path: "/process.Process/Start", headers: slices.Concat(streams, []string{"Connect-Timeout-Ms", "200"}), status: 200,
			body: command("sleep 60", ""), need: `{"error": {"code": "deadline_exceeded", "message": null}}`},
		{name: "run in no directory", method: "POST", path: "/process.Process/Start", headers: minute, status: 200,
			body: command("true", ",\n    \"cwd\": \"/none\""), need: `{"error": {"message": null}}`},
		{name: "start in the background", method: "POST", path: "/process.Process/Start", headers: day, status: 200,
			body: command("(sleep 600 > /dev/null 2>&1 &) ; echo started", ""), need: `{"stdout": "started\n"}`},
		{name: "list", method: "POST", path: "/process.Process/List", headers: unary, body: `{}`, status: 200, need: `{}`},
		{name: "connect to none", method: "POST", path: "/process.Process/Connect", headers: minute, body: "{\n  \"process\": {\n    \"pid\": 999999\n  }\n}", status: 200, need: `{"error": {"code": "not_found", "message": null}}`},
		{name: "kill none", method: "POST", path: "/process.Process/SendSignal", headers: unary, body: "{\n  \"process\": {\n    \"pid\": 999999\n  },\n  \"signal\": \"SIGNAL_SIGKILL\"\n}", status: 404, need: `{"code": "not_found", "message": null}`},
	}
}

// program uses a program that runs in the background.
func (p *pythonClient) program(t *testing.T) {
	started := p.open(t, pythonRequest{name: "run in the background", method: "POST", path: "/process.Process/Start", headers: minute,
		body: strings.Replace(command("cat", ""), `"stdin": false`, `"stdin": true`, 1)})
	p.send(t, pythonRequest{name: "list", method: "POST", path: "/process.Process/List", headers: unary, body: `{}`, status: 200,
		need: p.fill(`{"processes": [{"pid": {pid}, "config": {"cmd": "/bin/bash", "args": ["-l", "-c", "cat"]}}]}`)})
	connected := p.open(t, pythonRequest{name: "connect", method: "POST", path: "/process.Process/Connect", headers: minute, body: "{\n  \"process\": {\n    \"pid\": {pid}\n  }\n}"})
	p.send(t,
		pythonRequest{name: "send_stdin", method: "POST", path: "/process.Process/SendInput", headers: unary, body: "{\n  \"process\": {\n    \"pid\": {pid}\n  },\n  \"input\": {\n    \"stdin\": \"aGVsbG8K\"\n  }\n}", status: 200, need: `{}`},
		pythonRequest{name: "close_stdin", method: "POST", path: "/process.Process/CloseStdin", headers: unary, body: "{\n  \"process\": {\n    \"pid\": {pid}\n  }\n}", status: 200, need: `{}`})
	for name, s := range map[string]*stream{"run": started, "connect": connected} {
		var need any = map[string]any{"stdout": "hello\n", "end": map[string]any{"exited": true, "status": "exit status 0"}}
		if got := readStream(t, s); !has(got, need) {
			t.Errorf("the stream of %s has %v", name, got)
		}
	}
	killed := p.open(t, pythonRequest{name: "run in the background", method: "POST", path: "/process.Process/Start", headers: minute, body: command("sleep 600", "")})
	p.send(t, pythonRequest{name: "kill", method: "POST", path: "/process.Process/SendSignal", headers: unary, body: "{\n  \"process\": {\n    \"pid\": {pid}\n  },\n  \"signal\": \"SIGNAL_SIGKILL\"\n}", status: 200, need: `{}`})
	if got := readStream(t, killed); !has(got, map[string]any{"end": map[string]any{"status": "signal: killed"}}) {
		t.Errorf("the stream of a killed program has %v", got)
	}
}

// terminal uses a terminal.
func (p *pythonClient) terminal(t *testing.T) {
	s := p.open(t, pythonRequest{name: "pty.create", method: "POST", path: "/process.Process/Start", headers: minute,
		body: "{\n  \"process\": {\n    \"cmd\": \"/bin/bash\",\n    \"args\": [\n      \"-i\",\n      \"-l\"\n    ],\n    \"envs\": {\n      \"TERM\": \"xterm-256color\"\n    }\n  },\n  \"pty\": {\n    \"size\": {\n      \"cols\": 80,\n      \"rows\": 24\n    }\n  }\n}"})
	p.send(t,
		pythonRequest{name: "pty.resize", method: "POST", path: "/process.Process/Update", headers: unary, body: "{\n  \"process\": {\n    \"pid\": {pid}\n  },\n  \"pty\": {\n    \"size\": {\n      \"cols\": 90,\n      \"rows\": 30\n    }\n  }\n}", status: 200, need: `{}`},
		pythonRequest{name: "pty.send_stdin", method: "POST", path: "/process.Process/SendInput", headers: unary, body: "{\n  \"process\": {\n    \"pid\": {pid}\n  },\n  \"input\": {\n    \"pty\": \"" + base64.StdEncoding.EncodeToString([]byte("stty size; exit 3\n")) + "\"\n  }\n}", status: 200, need: `{}`})
	got := readStream(t, s)
	if shown, _ := got["pty"].(string); !strings.Contains(shown, "30 90") || !has(got, map[string]any{"end": map[string]any{"exitCode": 3.0}}) {
		t.Errorf("the terminal's stream has %v", got)
	}
}

// pythonFiles are the requests of files.
func pythonFiles() []pythonRequest {
	const entry = `"name": "a.txt", "path": "/home/user/d/a.txt", "type": "FILE_TYPE_FILE", "size": "4", "mode": 420, "permissions": "-rw-r--r--", "owner": "user", "group": "user", "modifiedTime": "20…"`
	part := func(name, kind, data string) string {
		return "--41d78ccac9ba61c6\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\nContent-Type: " + kind + "\r\n\r\n" + data + "\r\n"
	}
	upload := slices.Concat(envd, []string{"Content-Type", "multipart/form-data; boundary=41d78ccac9ba61c6"})
	const end = "--41d78ccac9ba61c6--\r\n"
	unaryFile := func(name, call, body, need string) pythonRequest {
		return pythonRequest{name: name, method: "POST", path: "/filesystem.Filesystem/" + call, headers: unary, body: body, status: 200, need: need}
	}
	return []pythonRequest{
		{name: "write", method: "POST", path: "/files?path=d%2Fa.txt", headers: upload, body: part("d/a.txt", "text/plain", "text") + end, status: 200,
			need: `[{"name": "a.txt", "type": "file", "path": "/home/user/d/a.txt"}]`},
		{name: "write as root", method: "POST", path: "/files?path=%2Fopt%2Fb&username=root", headers: upload, body: part("/opt/b", "application/octet-stream", "\x00\xff") + end, status: 200,
			need: `[{"name": "b", "type": "file", "path": "/opt/b"}]`},
		{name: "write_files", method: "POST", path: "/files", headers: upload, body: part("d/x", "text/plain", "x") + part("d/y", "application/octet-stream", "y") + end, status: 200,
			need: `[{"path": "/home/user/d/x"}, {"path": "/home/user/d/y"}]`},
		{name: "write bytes", method: "POST", path: "/files?path=d%2Fo", headers: slices.Concat(envd, []string{"Content-Type", "application/octet-stream"}), body: "o", status: 200,
			need: `[{"path": "/home/user/d/o"}]`},
		{name: "write gzip", method: "POST", path: "/files?path=d%2Fo", headers: slices.Concat(envd, []string{"Content-Type", "application/octet-stream", "Content-Encoding", "gzip"}),
			body: "\x1f\x8b\x08\x00\xb0s\x04k\x02\xff\xcb\x07\x00D\x93\x0f\x0f\x01\x00\x00\x00", status: 200, need: `[{"path": "/home/user/d/o"}]`},
		{name: "read what was gzip", method: "GET", path: "/files?path=d%2Fo", headers: envd, status: 200, need: `"o"`},
		{name: "write with metadata", method: "POST", path: "/files?path=%2Fdata%2Fm", headers: slices.Concat(upload, []string{"X-Metadata-K", "v"}), body: part("/data/m", "application/octet-stream", "m") + end, status: 200,
			need: `[{"path": "/data/m", "metadata": {"k": "v"}}]`},
		{name: "read", method: "GET", path: "/files?path=d%2Fa.txt", headers: envd, status: 200, need: `"text"`},
		{name: "read none", method: "GET", path: "/files?path=none", headers: envd, status: 404, need: `{"code": 404, "message": null}`},
		unaryFile("list", "ListDir", "{\n  \"path\": \"d\",\n  \"depth\": 2\n}", `{"entries": [{`+entry+`}, {"name": "o"}, {"name": "x"}, {"name": "y"}]}`),
		unaryFile("get_info", "Stat", "{\n  \"path\": \"d/a.txt\"\n}", `{"entry": {`+entry+`}}`),
		unaryFile("make_dir", "MakeDir", "{\n  \"path\": \"e/f\"\n}", `{"entry": {"path": "/home/user/e/f", "type": "FILE_TYPE_DIRECTORY"}}`),
		{name: "make_dir again", method: "POST", path: "/filesystem.Filesystem/MakeDir", headers: unary, body: "{\n  \"path\": \"e/f\"\n}", status: 409, need: `{"code": "already_exists"}`},
		unaryFile("rename", "Move", "{\n  \"source\": \"d/x\",\n  \"destination\": \"e/x\"\n}", `{"entry": {"path": "/home/user/e/x"}}`),
		unaryFile("remove", "Remove", "{\n  \"path\": \"e\"\n}", `{}`),
		unaryFile("remove none", "Remove", "{\n  \"path\": \"nope\"\n}", `{}`),
		{name: "exists", method: "POST", path: "/filesystem.Filesystem/Stat", headers: unary, body: "{\n  \"path\": \"/none\"\n}", status: 404, need: `{"code": "not_found", "message": null}`},
	}
}

// watch polls a watch, as the synchronous package does, and reads the stream of
// one, as the asynchronous package does.
func (p *pythonClient) watch(t *testing.T) {
	events := p.open(t, pythonRequest{name: "watch_dir, asynchronous", method: "POST", path: "/filesystem.Filesystem/WatchDir", headers: minute, body: "{\n  \"path\": \"d\",\n  \"recursive\": true\n}"})
	p.send(t, pythonRequest{name: "watch_dir", method: "POST", path: "/filesystem.Filesystem/CreateWatcher", headers: slices.Concat(unary, []string{"Keepalive-Ping-Interval", "50"}),
		body: "{\n  \"path\": \"d\",\n  \"recursive\": true\n}", status: 200, need: `{"watcherId": null}`, keep: map[string]string{"watcher": "watcherId"}},
		pythonRequest{name: "write", method: "POST", path: "/files?path=d%2Fnew", headers: slices.Concat(envd, []string{"Content-Type", "application/octet-stream"}), body: "1", status: 200, need: `[{"path": "/home/user/d/new"}]`})
	poll := pythonRequest{name: "get_new_events", method: "POST", path: "/filesystem.Filesystem/GetWatcherEvents", headers: unary, body: "{\n  \"watcherId\": \"{watcher}\"\n}", status: 200, need: `{}`}
	for text := ""; !strings.Contains(text, `{"name":"new","type":"EVENT_TYPE_WRITE"`); {
		b, err := json.Marshal(p.send(t, poll))
		if err != nil || t.Failed() {
			t.Fatal(err)
		}
		text += string(b)
	}
	for m := events.next(t); !has(m, map[string]any{"filesystem": map[string]any{"name": "new", "type": "EVENT_TYPE_WRITE"}}); m = events.next(t) {
		if m == nil || events.flag == 2 {
			t.Fatalf("the stream of a watch ends without the event: %v", m)
		}
	}
	p.send(t, pythonRequest{name: "stop", method: "POST", path: "/filesystem.Filesystem/RemoveWatcher", headers: unary, body: "{\n  \"watcherId\": \"{watcher}\"\n}", status: 200, need: `{}`},
		pythonRequest{name: "get_new_events of none", method: "POST", path: "/filesystem.Filesystem/GetWatcherEvents", headers: unary, body: "{\n  \"watcherId\": \"{watcher}\"\n}", status: 404, need: `{"code": "not_found"}`})
}

// pythonInterpreter are the requests of the code interpreter.
func pythonInterpreter() []pythonRequest {
	execute := func(name, body, need string) pythonRequest {
		return pythonRequest{name: name, method: "POST", path: "/execute", headers: slices.Concat(jupyter, []string{"X-Access-Token", "{access}"}), body: body, status: 200, need: need}
	}
	return []pythonRequest{
		execute("run_code", `{"code":"x=1;print(x);x","context_id":null,"language":null,"env_vars":null}`,
			`[{"type": "number_of_executions", "execution_count": 1}, {"type": "stdout", "text": "1\n", "timestamp": null}, {"type": "result", "text": "1", "is_main_result": true}, {"type": "end"}]`),
		execute("run_code with variables", `{"code":"import os;os.environ['Q']","context_id":null,"language":"python","env_vars":{"Q":"z"}}`,
			`[{"type": "number_of_executions", "execution_count": 2}, {"type": "result", "text": "z"}, {"type": "end"}]`),
		execute("run_code that fails", `{"code":"1/0","context_id":null,"language":null,"env_vars":null}`,
			`[{"type": "number_of_executions"}, {"type": "error", "name": "ZeroDivisionError", "value": "division by zero", "traceback": null}, {"type": "end"}]`),
		{name: "create_code_context", method: "POST", path: "/contexts", headers: jupyter, body: `{"language":"python","cwd":"/tmp"}`, status: 200,
			need: `{"id": null, "language": "python", "cwd": "/tmp"}`, keep: map[string]string{"context": "id"}},
		execute("run_code in a context", `{"code":"import os; os.getcwd()","context_id":"{context}","language":null,"env_vars":null}`,
			`[{"type": "number_of_executions", "execution_count": 1}, {"type": "result", "text": "/tmp"}, {"type": "end"}]`),
		{name: "health of the interpreter", method: "GET", path: "/health", headers: jupyter, status: 200, need: `"OK"`},
		{name: "list_code_contexts", method: "GET", path: "/contexts", headers: jupyter, status: 200,
			need: `[{"id": null, "language": "python", "cwd": null}, {"id": null, "language": "javascript", "cwd": null}, {"id": "{context}", "language": "python", "cwd": "/tmp"}]`},
		{name: "create_code_context of root", method: "POST", path: "/contexts", headers: jupyter, body: `{"language":"python","cwd":"/root"}`, status: 200,
			need: `{"language": "python", "cwd": "/root", "id": null}`},
		{name: "restart_code_context", method: "POST", path: "/contexts/{context}/restart", headers: jupyter, status: 204},
		{name: "remove_code_context", method: "DELETE", path: "/contexts/{context}", headers: jupyter, status: 204},
		{name: "interpreters are no processes", method: "POST", path: "/process.Process/List", headers: unary, body: `{}`, status: 200, need: `{"processes": []}`},
	}
}

// A pythonClient sends requests as E2B's Python packages do.
type pythonClient struct {
	url, key string
	kept     map[string]string // what {NAME} stands for
}

func (p *pythonClient) fill(text string) string {
	for name, value := range p.kept {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// do sends a request.
func (p *pythonClient) do(t *testing.T, r pythonRequest) *http.Response {
	t.Helper()
	headers := slices.Clone(r.headers)
	if headers == nil {
		headers = []string{"X-API-KEY", p.key, "Content-Type", "application/json"}
	}
	body := p.fill(r.body)
	if r.streams() {
		body = string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))) + body
	}
	req, err := http.NewRequestWithContext(t.Context(), r.method, p.url+p.fill(r.path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(append(headers, "User-Agent", "e2b-python-sdk/2.34.0"), 2) {
		req.Header.Set(pair[0], p.fill(pair[1]))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	return resp
}

// streams says whether the answer is a stream of messages.
func (r pythonRequest) streams() bool { return slices.Contains(r.headers, "application/connect+json") }

// send sends requests one after the other, checks the answers, and returns the
// last one.
func (p *pythonClient) send(t *testing.T, requests ...pythonRequest) (last any) {
	t.Helper()
	for _, r := range requests {
		resp := p.do(t, r)
		if r.streams() && resp.StatusCode == http.StatusOK {
			last = readStream(t, &stream{r: resp.Body})
		} else {
			last = readAnswer(t, resp.Body)
		}
		resp.Body.Close()
		if resp.StatusCode != r.status {
			t.Errorf("%s: status %d, want %d: %v", r.name, resp.StatusCode, r.status, last)
			continue
		}
		if r.need != "" {
			var need any
			if err := json.Unmarshal([]byte(p.fill(r.need)), &need); err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
			if !has(last, need) {
				t.Errorf("%s: got %v, which lacks a part of %s", r.name, last, p.fill(r.need))
			}
		}
		for name, member := range r.keep {
			p.kept[name], _ = last.(map[string]any)[member].(string)
		}
	}
	return last
}

// open sends a request whose answer is a stream that lasts, and keeps the pid
// that a program's stream begins with.
func (p *pythonClient) open(t *testing.T, r pythonRequest) *stream {
	t.Helper()
	resp := p.do(t, r)
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d: %v", r.name, resp.StatusCode, readAnswer(t, resp.Body))
	}
	s := &stream{r: resp.Body}
	first := s.next(t)
	event, _ := first["event"].(map[string]any)
	if start, ok := event["start"].(map[string]any); ok {
		p.kept["pid"] = fmt.Sprint(start["pid"])
	} else if _, ok := first["start"]; !ok {
		t.Fatalf("%s: the stream begins with %v", r.name, first)
	}
	return s
}

// has says whether got has all of need, whose lists have as many members.
func has(got, need any) bool {
	switch need := need.(type) {
	case nil:
		return got != nil
	case map[string]any:
		m, ok := got.(map[string]any)
		for name, v := range need {
			ok = ok && has(m[name], v)
		}
		return ok
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(need) {
			return false
		}
		for i := range need {
			ok = ok && has(list[i], need[i])
		}
		return ok
	case string:
		s, ok := got.(string)
		start, open := strings.CutSuffix(need, "…")
		return ok && (s == need || open && strings.HasPrefix(s, start) && s != start)
	}
	return reflect.DeepEqual(got, need)
}

// readAnswer reads JSON, lines of JSON as a list, or a text.
func readAnswer(t *testing.T, body io.Reader) any {
	t.Helper()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	var one any
	if json.Unmarshal(b, &one) == nil {
		return one
	}
	var list []any
	for line := range strings.Lines(string(b)) {
		var v any
		if json.Unmarshal([]byte(line), &v) != nil {
			return string(b)
		}
		list = append(list, v)
	}
	return list
}

// A stream has messages, each after a flag and its length.
type stream struct {
	r    io.Reader
	flag byte // of the latest message
}

// next returns the next message, or nil at the end.
func (s *stream) next(t *testing.T) (m map[string]any) {
	t.Helper()
	var head [5]byte
	if _, err := io.ReadFull(s.r, head[:]); err == io.EOF {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	message := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(s.r, message); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(message, &m); err != nil {
		t.Fatalf("%v: %s", err, message)
	}
	s.flag = head[0]
	return m
}

// readStream reads the rest of a program's stream: the end of the program, the
// stream's own error, and all output.
func readStream(t *testing.T, s *stream) map[string]any {
	t.Helper()
	out := map[string]any{}
	for m := s.next(t); m != nil; m = s.next(t) {
		if s.flag == 2 { // the stream's own end
			maps.Copy(out, m)
			continue
		}
		event, _ := m["event"].(map[string]any)
		data, _ := event["data"].(map[string]any)
		for name, v := range data {
			text, err := base64.StdEncoding.DecodeString(v.(string))
			if err != nil {
				t.Fatal(err)
			}
			before, _ := out[name].(string)
			out[name] = before + string(text)
		}
		if end, ok := event["end"]; ok {
			out["end"] = end
		}
	}
	return out
}
