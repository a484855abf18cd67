package mcpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An sseStream is the client's side of a session on SSE, without a network: the
// server waits for each byte to be read.
type sseStream struct {
	*io.PipeWriter
	header http.Header
}

func (s sseStream) Header() http.Header { return s.header }
func (sseStream) WriteHeader(int)       {}
func (sseStream) Flush()                {}

// openStream opens a session, which ends when ctx does. The caller reads it.
func openStream(ctx context.Context, s *Server, who sandbox.Principal) (events io.Reader, over chan struct{}) {
	r, w := io.Pipe()
	over = make(chan struct{})
	go func() {
		defer close(over)
		req := httptest.NewRequest("GET", transport.SSEPath, nil)
		s.Handler().ServeHTTP(sseStream{w, http.Header{}}, req.WithContext(as(ctx, who)))
	}()
	context.AfterFunc(ctx, func() { r.Close() })
	return r, over
}

func as(ctx context.Context, who sandbox.Principal) context.Context {
	return auth.NewContext(ctx, auth.Identity{Principal: who, Scopes: auth.Scopes()})
}

// connect opens a session, and reads its endpoint and no more.
func (c *sseTester) connect(t *testing.T, ctx context.Context, who sandbox.Principal) (events *bufio.Reader, over chan struct{}) {
	t.Helper()
	r, over := openStream(ctx, c.s, who)
	events = bufio.NewReader(r)
	for c.endpoint == "" {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if _, address, ok := strings.Cut(strings.TrimSpace(line), "data: "); ok {
			c.endpoint = address
		}
	}
	c.who = who
	return events, over
}

// open opens a session and begins it. All of its events are read.
func (c *sseTester) open(t *testing.T, ctx context.Context, who sandbox.Principal) (over chan struct{}) {
	t.Helper()
	events, over := c.connect(t, ctx, who)
	go func() { _, _ = io.Copy(c, events) }()
	for _, m := range []string{initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`} {
		if w := c.post(m); w.Code != http.StatusAccepted {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	return over
}

// An sseTester is a client of a session.
type sseTester struct {
	s        *Server
	who      sandbox.Principal
	endpoint string

	mu   sync.Mutex
	text strings.Builder
}

func (c *sseTester) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(b)
}

func (c *sseTester) has(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Contains(c.text.String(), text)
}

func (c *sseTester) post(body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", c.endpoint, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	c.s.Handler().ServeHTTP(w, r.WithContext(as(r.Context(), c.who)))
	return w
}

func runCode(id int, code string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_code","arguments":{"code":%q,"wait_seconds":600}}}`, id, code)
}

// TestStuckStream has a client open a session and read nothing of it. Others open
// theirs.
func TestStuckStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		_, stuck := openStream(ctx, s, "a")
		synctest.Wait()
		began := time.Now()
		b := &sseTester{s: s}
		over := b.open(t, ctx, "b")
		synctest.Wait()
		if !b.has(`"protocolVersion"`) || time.Since(began) != 0 {
			t.Errorf("b's session, after %v, has not begun", time.Since(began))
		}
		cancel()
		<-stuck
		<-over
		synctest.Wait()
		if st := s.shares.Calls.Stats(); st.Used != 0 {
			t.Errorf("the sessions are gone, and calls are counted: %+v", st)
		}
	})
}

// TestManyLargeCalls has a principal begin as many calls as it can, which last, with
// large arguments, by a transport on which no request waits for them.
func TestManyLargeCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, nil)
		const total = 32 << 20
		s.shares.Calls = fair.New(fair.Options{Name: "bytes of calls", Total: total, Small: 128 << 10, Reserve: total / 4})
		ctx, cancel := context.WithCancel(t.Context())
		a, b := &sseTester{s: s}, &sseTester{s: s}
		aOver, bOver := a.open(t, ctx, "a"), b.open(t, ctx, "b")
		synctest.Wait()
		call := runCode(123456, "sleep 5m\n"+strings.Repeat("#", 1<<20))
		accepted := 0
		for i := range 200 {
			switch w := a.post(strings.Replace(call, "123456", fmt.Sprint(i+10), 1)); w.Code {
			case http.StatusAccepted:
				accepted++
			case http.StatusServiceUnavailable:
				if w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "your share") {
					t.Fatalf("%v %s", w.Header(), w.Body)
				}
			default:
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if accepted < i+1 {
				break
			}
		}
		if held := s.shares.Calls.Held("a"); held > total/2+2<<20 || accepted < 5 {
			t.Errorf("a has %d calls under way, of %d bytes", accepted, held)
		}
		began := time.Now()
		if w := b.post(runCode(10, "out here")); w.Code != http.StatusAccepted {
			t.Errorf("b's call: %d %s", w.Code, w.Body)
		}
		synctest.Wait()
		if !b.has("here") || time.Since(began) != 0 {
			t.Errorf("b's call has no answer after %v", time.Since(began))
		}
		if held := s.shares.Calls.Held("b"); held != 0 {
			t.Errorf("b's answers have left, and %d bytes are held", held)
		}
		if w := b.post(runCode(20, "sleep 1m")); w.Code != http.StatusAccepted {
			t.Errorf("b's next call: %d", w.Code)
		}
		if w := b.post(runCode(20, "sleep 1m")); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "a call with this id is under way") {
			t.Errorf("b's call of the same id: %d %s", w.Code, w.Body)
		}
		cancel()
		<-aOver
		<-bOver
		synctest.Wait()
		if st := s.shares.Calls.Stats(); st.Used != 0 {
			t.Errorf("calls that ended are counted: %+v", st)
		}
	})
}

// TestAnswersAreHeld has a client read nothing after it asked for large answers
// and for small ones: each holds its own memory until it has left.
func TestAnswersAreHeld(t *testing.T) {
	s, e := newTestServer(t, nil)
	sb, err := e.Create(t.Context(), "a", sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.WriteFile(t.Context(), "a", sb.ID, "/f", strings.NewReader(strings.Repeat("x", 1<<20)), false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a := &sseTester{s: s}
	events, over := a.connect(t, ctx, "a")
	a.post(initialize)
	go func() { // reads the answer to that, and one event more
		for range 6 {
			_, _ = events.ReadString('\n')
		}
	}()
	a.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	const large = 3
	for i := range large {
		a.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/read","params":{"uri":"sandbox://%s/files/f"}}`, 100+i, sb.ID))
	}
	for i := range 10 {
		a.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, 200+i))
	}
	least := int64(large-1) * ledger.AnswerCost << 20
	for end := time.Now().Add(10 * time.Second); s.shares.Answers.Held("a") < least && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // in which no answer leaves
	if got := s.shares.Answers.Held("a"); got < least {
		t.Errorf("%d bytes are held for %d answers of 1 MiB of which one left, want %d", got, large, least)
	}
	cancel()
	<-over
	if st := s.shares.Answers.Stats(); st.Used != 0 {
		t.Errorf("answers of a session that is gone are counted: %+v", st)
	}
}

// TestShutdownIsBounded shuts a server down with a session whose client reads
// nothing.
func TestShutdownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		a := &sseTester{s: s}
		r, over := openStream(ctx, s, "a")
		// The client reads the address of its session, and not the end of the line.
		const parameter, name = "sessionid=", 26
		event := ""
		for !strings.Contains(event, parameter) || len(event) < strings.Index(event, parameter)+len(parameter)+name {
			b := make([]byte, 1)
			if _, err := r.Read(b); err != nil {
				t.Fatal(err)
			}
			event += string(b)
		}
		_, address, _ := strings.Cut(event, "data: ")
		a.endpoint, a.who = address, "a"
		go a.post(initialize)
		synctest.Wait()
		began := time.Now()
		ended, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		_ = s.Shutdown(ended) // which tells that the call was cancelled
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("Shutdown took %v", took)
		}
		cancel()
		<-over
	})
}

// TestGrownAnswers has answers of text that JSON makes longer hold more.
func TestGrownAnswers(t *testing.T) {
	for text, growth := range map[string]int64{"plain text": 0, "a\nb\"\\\t": 4, "<b>&\x00": 20, "ä€": 0} {
		if got := ledger.JSONGrowth(text); got != growth {
			t.Errorf("%q grows by %d bytes, want %d", text, got, growth)
		}
	}
	s, _ := newTestServer(t, nil)
	for text, want := range map[string]int64{"x": 0, "<": textCopies * 5 << 20} {
		ctx, end, err := s.transport.Begin(t.Context(), auth.Identity{Principal: "a"}, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat(text, 1<<20)}}}
		if err := grown(ctx, "a", res); err != nil {
			t.Fatal(err)
		}
		if got := s.shares.Answers.Held("a"); got != want {
			t.Errorf("an answer of 1 MiB of %q holds %d bytes more, want %d", text, got, want)
		}
		end()
	}
}

// TestManyNotifications has a client send notifications to a session that handles
// none of them, because its client reads nothing.
func TestManyNotifications(t *testing.T) {
	s, _ := newTestServer(t, nil)
	const total = 32 << 20
	s.shares.Calls = fair.New(fair.Options{Name: "bytes of calls", Total: total, Small: 128 << 10, Reserve: total / 4})
	ctx, cancel := context.WithCancel(t.Context())
	a := &sseTester{s: s}
	_, over := a.connect(t, ctx, "a")
	// The refusal of a call before the session's begin is written at once, and
	// stops the session.
	a.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
	note := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"` + strings.Repeat("x", 1<<20) + `"}}`
	accepted := 0
	for ; accepted < 100; accepted++ {
		w := httptest.NewRecorder()
		req := httptest.NewRequest("POST", a.endpoint, strings.NewReader(note))
		waits, stop := context.WithTimeout(t.Context(), 3*time.Second) // for its share
		s.Handler().ServeHTTP(w, req.WithContext(as(waits, "a")))
		stop()
		if w.Code == http.StatusServiceUnavailable {
			break
		}
		if w.Code != http.StatusAccepted {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	// What the session refuses gives back nothing of the others.
	for range accepted {
		if w := a.post(`{"jsonrpc":"2.0","method":"x"}`); w.Code != http.StatusBadRequest && w.Code != http.StatusServiceUnavailable {
			t.Errorf("an unknown notification: %d %s", w.Code, w.Body)
		}
	}
	if held := s.shares.Calls.Held("a"); accepted >= total>>20 || held < int64(accepted)<<20 {
		t.Errorf("%d notifications of 1 MiB are queued, and %d bytes are held", accepted, held)
	}
	// Another's notifications are handled, and hold nothing then.
	b := &sseTester{s: s}
	bOver := b.open(t, ctx, "b")
	for range 20 {
		if w := b.post(strings.Replace(note, "x", "y", 1)); w.Code != http.StatusAccepted {
			t.Errorf("b's notification: %d %s", w.Code, w.Body)
		}
	}
	for end := time.Now().Add(10 * time.Second); s.shares.Calls.Held("b") > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if held := s.shares.Calls.Held("b"); held > 0 {
		t.Errorf("b's notifications were handled, and %d bytes are held", held)
	}
	cancel()
	<-over
	<-bOver
	if st := s.shares.Calls.Stats(); st.Used != 0 {
		t.Errorf("the sessions are gone, and messages are counted: %+v", st)
	}
}

// TestHostileMessages has messages that take much more memory than their length, in
// all ways to send one.
func TestHostileMessages(t *testing.T) {
	many := `{"jsonrpc":"2.0","id":1,"method":"%s","params":{"name":"run_code","arguments":{"code":"x"},"_meta":{"x":[` + strings.Repeat("{},", 100_000) + `{}],` +
		modernMeta[strings.Index(modernMeta, "{")+1:] + `}}`
	long := `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1025) + `","method":"tools/list","params":{}}`
	s, _ := newTestServer(t, nil)
	for name, c := range map[string]struct{ body, want string }{
		"Call":   {fmt.Sprintf(many, "tools/call"), "JSON values"},
		"Listen": {fmt.Sprintf(many, "subscriptions/listen"), "JSON values"},
		"Batch":  {"[" + strings.Repeat("{},", 100_000) + "{}]", "JSON values"},
		"ID":     {long, "the id has more than 1024 bytes"},
		"Method": {`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("<", 257) + `","params":{}}`, "the method has more than 256 bytes"},
		// The SDK reads keys in small letters alone.
		"HiddenID": {strings.Replace(long, `"method"`, `"ID":1,"method"`, 1), "the id has more than 1024 bytes"},
	} {
		if w := asked(t.Context(), s, "a", c.body); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %.200s", name, w.Code, w.Body)
		}
		if w := asked(t.Context(), s, "a", "["+c.body+"]"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s in a batch: %d %.200s", name, w.Code, w.Body)
		}
		ctx, cancel := context.WithCancel(t.Context())
		a := &sseTester{s: s}
		over := a.open(t, ctx, "a")
		if w := a.post(c.body); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s on SSE: %d %.200s", name, w.Code, w.Body)
		}
		cancel()
		<-over
	}
}

// ledgerEngine counts readings of results that no ledger counts.
type ledgerEngine struct {
	*fakeEngine
	uncounted atomic.Int32
}

func (e *ledgerEngine) Results(ctx context.Context, p sandbox.Principal, id string) (sandbox.Results, error) {
	if ledger.Of(ctx) == nil {
		e.uncounted.Add(1)
	}
	return e.fakeEngine.Results(ctx, p, id)
}

func (e *ledgerEngine) Output(ctx context.Context, p sandbox.Principal, id string, budget int) (sandbox.Output, error) {
	if ledger.Of(ctx) == nil {
		e.uncounted.Add(1)
	}
	return e.fakeEngine.Output(ctx, p, id, budget)
}

// TestTasksAreCounted reads a run as a task.
func TestTasksAreCounted(t *testing.T) {
	e := &ledgerEngine{fakeEngine: newFakeEngine()}
	s, _ := newTestServer(t, func(o *Options) { o.Engine = e })
	url := serveHTTP(t, s)
	id := askTasks(t, url, "alice", "tools/call", "run_code", `"name":"run_code","arguments":{"code":"out here\nsleep 2500ms"}`).Result.TaskID
	if id == "" {
		t.Fatal("the run became no task")
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		r := askTasks(t, url, "alice", task.MethodGet, id, `"taskId":"`+id+`"`)
		if r.Result.Status == task.Completed {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the task is %+v", r)
		}
	}
	if n := e.uncounted.Load(); n > 0 {
		t.Errorf("%d readings for a task were not counted", n)
	}
	for _, stats := range s.shares.Stats() {
		if st := stats(); st.Used != 0 {
			t.Errorf("something is held after the answers: %+v", st)
		}
	}
}

// TestManyNotificationsOfStreamable is the same for a session of Streamable HTTP,
// which a call stops whose answer its client does not take.
func TestManyNotificationsOfStreamable(t *testing.T) {
	s, _ := newTestServer(t, nil)
	const total = 32 << 20
	s.shares.Calls = fair.New(fair.Options{Name: "bytes of calls", Total: total, Small: 128 << 10, Reserve: total / 4})
	ctx, cancel := context.WithCancel(t.Context())
	session := []string{sessionHeader, asked(ctx, s, "a", initialize).Header().Get(sessionHeader)}
	asked(ctx, s, "a", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session...)
	let := make(chan struct{})
	var stuck sync.WaitGroup
	stuck.Go(func() {
		askHTTP(ctx, s, stuckWriter{httptest.NewRecorder(), let}, "a", "POST", `{"jsonrpc":"2.0","id":5,"method":"server/discover","params":{}}`, session...)
	})
	time.Sleep(100 * time.Millisecond)
	note := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"` + strings.Repeat("x", 1<<20) + `"}}`
	accepted := 0
	for ; accepted < 100; accepted++ {
		waits, stop := context.WithTimeout(ctx, 3*time.Second) // for its share
		w := asked(waits, s, "a", note, session...)
		stop()
		if w.Code == http.StatusServiceUnavailable {
			break
		}
		if w.Code != http.StatusAccepted {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if held := s.shares.Calls.Held("a"); accepted >= total>>20 || held < int64(accepted)<<20 {
		t.Errorf("%d notifications of 1 MiB are queued, and %d bytes are held", accepted, held)
	}
	close(let) // the client takes the answer
	stuck.Wait()
	for end := time.Now().Add(10 * time.Second); s.shares.Calls.Held("a") > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if held := s.shares.Calls.Held("a"); held > 0 {
		t.Errorf("the notifications were handled, and %d bytes are held", held)
	}
	cancel()
}

// TestLongNames asks for a tool and a resource with a name that the answer must not
// repeat.
func TestLongNames(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	long := strings.Repeat("<", 8193)
	_, tool := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: long})
	_, resource := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "x:" + long})
	for name, err := range map[string]error{"tool": tool, "resource": resource} {
		if err == nil || len(err.Error()) > 200 || !strings.Contains(err.Error(), "the name has more than 8192 bytes") {
			t.Errorf("a %s: %.300v", name, err)
		}
	}
}
