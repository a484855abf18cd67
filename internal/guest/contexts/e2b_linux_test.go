package contexts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An e2bClient knows E2B's protocol only.
type e2bClient struct {
	t    *testing.T
	http http.Client
}

func newE2BClient(t *testing.T, h *host) *e2bClient {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return guesttest.Dialer(h.Socket)(ctx)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &e2bClient{t: t, http: http.Client{Transport: transport}}
}

// call sends a request, and returns the status and the body of the answer.
func (c *e2bClient) call(method, path, body string) (int, []byte) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://guest"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, b
}

// list returns the languages and the identifiers of the contexts.
func (c *e2bClient) list() string {
	c.t.Helper()
	_, b := c.call("GET", "/contexts", "")
	var list []guestapi.Context
	if err := json.Unmarshal(b, &list); err != nil {
		c.t.Fatalf("%v: %s", err, b)
	}
	var out []string
	for _, x := range list {
		out = append(out, fmt.Sprintf("%s %s %t", x.Language, x.ID, x.Cwd != ""))
	}
	return strings.Join(out, "; ")
}

// run runs code and returns the last result and the error.
func (c *e2bClient) run(language, code string) (result map[string]any, failed *guestapi.RunError) {
	c.t.Helper()
	body, err := json.Marshal(map[string]string{"language": language, "code": code})
	if err != nil {
		c.t.Fatal(err)
	}
	status, b := c.call("POST", "/execute", string(body))
	if status != http.StatusOK {
		c.t.Fatalf("%s: status %d: %s", code, status, b)
	}
	errors := 0
	for line := range bytes.Lines(b) {
		var ev map[string]any
		if err := json.Unmarshal(line, &ev); err != nil {
			c.t.Fatal(err)
		}
		switch ev["type"] {
		case "result":
			result = ev
		case "error":
			failed = &guestapi.RunError{}
			if err := json.Unmarshal(line, failed); err != nil {
				c.t.Fatal(err)
			}
			errors++
		}
	}
	if errors > 1 {
		c.t.Errorf("%s: %d errors", code, errors)
	}
	return result, failed
}

// output runs code and returns the texts that it wrote to stdout, by event.
func (c *e2bClient) output(language, code string) []string {
	c.t.Helper()
	body, err := json.Marshal(map[string]string{"language": language, "code": code})
	if err != nil {
		c.t.Fatal(err)
	}
	status, b := c.call("POST", "/execute", string(body))
	if status != http.StatusOK {
		c.t.Fatalf("%s: status %d: %s", code, status, b)
	}
	var texts []string
	for line := range bytes.Lines(b) {
		var ev struct{ Type, Text string }
		if err := json.Unmarshal(line, &ev); err != nil {
			c.t.Fatal(err)
		}
		if ev.Type == "stdout" {
			texts = append(texts, ev.Text)
		}
	}
	return texts
}

// TestE2BProcesses: a client may kill each process that it finds in the list, as
// frameworks do, and keep its contexts.
func TestE2BProcesses(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	c := newE2BClient(t, h)
	c.run("python", "x = 1")
	program := h.Begin(guesttest.Sh("sleep 600"), guestapi.StartOptions{})
	defer program.Close()
	list, err := h.Processes(t.Context())
	if err != nil || len(list) != 1 || list[0].PID != guesttest.PIDOf(program).PID {
		t.Fatalf("the list has %+v, %v; want the program alone", list, err)
	}
}

func TestE2BDefaultContexts(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3", "node")
	own, err := h.Contexts(t.Context())
	if err != nil || len(own) != 0 {
		t.Errorf("without a request of E2B there are %+v, %v", own, err)
	}
	c := newE2BClient(t, h)
	const defaults = "python default-python true; javascript default-javascript true"
	same(t, "at first", c.list(), defaults)
	if status, b := c.call("POST", "/contexts", `{}`); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, b)
	}
	if _, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	list := strings.Split(c.list(), "; ")
	if len(list) != 4 || strings.Join(list[:2], "; ") != defaults || !strings.HasPrefix(list[2], "python ") || list[3] != "python a true" {
		t.Errorf("contexts are %q", list)
	}
	_, b := c.call("GET", "/contexts", "")
	var described []guestapi.Context
	if err := json.Unmarshal(b, &described); err != nil || len(described) < 2 {
		t.Fatalf("%v: %s", err, b)
	}
	if described[0].Cwd == "" || described[0].Cwd == "~" {
		t.Errorf("Python's is in %q", described[0].Cwd)
	}
	r, _ := c.run("javascript", "40 + 2")
	same(t, "a run in a default context", r["text"], any("42"))
	if status, b := c.call("DELETE", "/contexts/default-javascript", ""); status != http.StatusNoContent {
		t.Errorf("remove: status %d: %s", status, b)
	}
	if got := c.list(); strings.Contains(got, "javascript") {
		t.Errorf("after its removal there are %s", got)
	}
}

// A context that was made in advance, in another directory, is in its place.
func TestE2BDefaultContextMadeAhead(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	made, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{ID: guestapi.DefaultContextID("python"), Cwd: "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	c := newE2BClient(t, h)
	_, b := c.call("GET", "/contexts", "")
	var list []guestapi.Context
	if err := json.Unmarshal(b, &list); err != nil || len(list) == 0 || list[0].ID != made.ID {
		t.Fatalf("%v: %s", err, b)
	}
	body := `{"code": "import os; os.getcwd()"}`
	_, b = c.call("POST", "/execute", body)
	if list[0].Cwd == "/tmp" || !strings.Contains(string(b), list[0].Cwd) {
		t.Errorf("listed in %s: %s", list[0].Cwd, b)
	}
}

func TestE2BResults(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3", "node", "bash")
	c := newE2BClient(t, h)
	for _, x := range []struct{ language, code, text string }{
		{"python", "'abc'", "abc"}, {"python", `"it's"`, "it's"}, {"python", "''", ""}, {"python", `"'a'"`, "'a'"}, {"python", "5", "5"},
		{"javascript", "'abc'", "abc"}, {"python", "\n    x = 'é'\n    x\n    ", "é"},
	} {
		r, _ := c.run(x.language, x.code)
		same(t, x.code, r["text"], any(x.text))
	}
	same(t, "for our own clients", h.in("python", "'abc'").main(), "'abc'")
	r, _ := c.run("python", "{'a': [1, 2.5]}")
	if b, _ := json.Marshal(r["json"]); string(b) != `{"a":[1,2.5]}` {
		t.Errorf("JSON of a dictionary is %s", b)
	}
	for _, x := range []struct{ language, code, name, value string }{
		{"python", "import sys; sys.exit(3)", "SystemExit", "3"}, {"python", "1//0", "ZeroDivisionError", "integer division or modulo by zero"},
		{"bash", "false", "", "1"}, {"python", "import os; os._exit(4)", "ContextRestarting", "the interpreter exited (exit status 4)"},
	} {
		if _, err := c.run(x.language, x.code); err == nil || err.Name != x.name || err.Value != x.value {
			t.Errorf("%s: error is %+v", x.code, err)
		}
	}
	for _, code := range []string{"1", "import sys; sys.exit(0)"} {
		if _, err := c.run("python", code); err != nil {
			t.Errorf("%s: error is %+v", code, err)
		}
	}
}

func TestContextDirectoryOfAnother(t *testing.T) {
	t.Parallel()
	guesttest.NeedRoot(t)
	h := newEvalHost(t, "python3")
	_, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{Cwd: "/root"})
	guesttest.WantKind(t, err, sandbox.Invalid, `user "user" cannot enter the working directory /root`)
}

// A client of E2B's protocol gets the context all the same, as root.
func TestE2BContextDirectoryOfAnother(t *testing.T) {
	t.Parallel()
	guesttest.NeedRoot(t)
	h := newEvalHost(t, "python3")
	c := newE2BClient(t, h)
	status, b := c.call("POST", "/contexts", `{"language":"python","cwd":"/root"}`)
	var made guestapi.Context
	if err := json.Unmarshal(b, &made); err != nil || status != http.StatusOK || made.Cwd != "/root" {
		t.Fatalf("status %d: %s", status, b)
	}
	who := `"code": "import os; (os.getuid(), os.getcwd())"`
	if _, b := c.call("POST", "/execute", `{"context_id": "`+made.ID+`", `+who+`}`); !strings.Contains(string(b), "(0, '/root')") {
		t.Errorf("in it: %s", b)
	}
	if status, b := c.call("POST", "/contexts", `{"language":"python","cwd":"/tmp"}`); status != http.StatusOK {
		t.Errorf("elsewhere: status %d: %s", status, b)
	} else if err := json.Unmarshal(b, &made); err != nil {
		t.Fatal(err)
	}
	if _, b := c.call("POST", "/execute", `{"context_id": "`+made.ID+`", `+who+`}`); strings.Contains(string(b), "(0, ") || !strings.Contains(string(b), "'/tmp')") {
		t.Errorf("in /tmp: %s", b)
	}
	for cwd, want := range map[string]int{"/none": http.StatusNotFound, "/root/none": http.StatusForbidden, "/etc/passwd": http.StatusBadRequest} {
		if status, b := c.call("POST", "/contexts", `{"language":"python","cwd":"`+cwd+`"}`); status != want {
			t.Errorf("in %s: status %d: %s", cwd, status, b)
		}
	}
}
