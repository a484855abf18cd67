package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// interpret answers requests to the code interpreter as E2B's does, which has no
// last event; code is answered by the lines of said, or cut off if those are not
// whole.
func interpret(said map[string]string) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("E2b-Sandbox-Port") != "49999" {
			return false
		}
		switch path := strings.TrimPrefix(r.URL.Path, "/box"); {
		case r.Method == http.MethodPost && path == guestapi.PathContexts:
			fmt.Fprint(w, `{"id":"c0ffee","language":"python","cwd":"/data"}`)
		case r.Method == http.MethodPost && path == guestapi.PathExecute:
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(err)
			}
			for code, lines := range said {
				if strings.Contains(string(body), code) {
					if lines == "gone" {
						http.Error(w, `{"detail":"Context c0ffee not found"}`, http.StatusNotFound)
						return true
					}
					fmt.Fprint(w, lines)
					if !strings.HasSuffix(lines, "\n") {
						w.(http.Flusher).Flush()
						panic(http.ErrAbortHandler)
					}
				}
			}
		default:
			http.Error(w, `{"detail":"Not Found"}`, http.StatusNotFound)
		}
		return true
	}
}

// TestE2BContexts has the interpreter do what Glovebox's own does not.
func TestE2BContexts(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	const count = `{"type":"number_of_executions","execution_count":3}` + "\n"
	said := map[string]string{
		"well":   count + `{"type":"stdout","text":"hello\n","timestamp":"x"}` + "\n" + `{"type":"keepalive"}` + "\n" + `{"type":"result","text":"1","is_main_result":true}` + "\n" + `{"type":"end_of_execution"}` + "\n",
		"raises": count + `{"type":"error","name":"ValueError","value":"no","traceback":"Traceback: no"}` + "\n",
		"dies":   count + `{"type":"error","name":"UnexpectedEndOfExecution","value":"connection closed","traceback":""}` + "\n",
		"breaks": count + `{"type":"stdout","text":"half`,
		"lost":   "gone",
	}
	c.set(interpret(said))
	kind := func(ev *guestapi.Event) string {
		switch {
		case ev.Turn != nil:
			return "turn"
		case ev.Data != nil:
			return "output"
		case ev.Result != nil:
			return "result"
		case ev.Error != nil:
			return "error"
		}
		return "end"
	}
	run := func(code string) (events []string, end *guestapi.End) {
		t.Helper()
		stream, err := client.Execute(t.Context(), "", &guestapi.ExecuteRequest{ContextID: "default-python", Create: true, Language: "python", Code: code}, nil)
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		defer stream.Close()
		for end == nil {
			ev, err := stream.Next()
			if err != nil {
				t.Fatalf("%s: %v", code, err)
			}
			events, end = append(events, kind(ev)), ev.End
		}
		return events, end
	}
	for code, want := range map[string]guestapi.End{
		"well":   {Status: guestapi.EndOK},
		"raises": {Status: guestapi.EndError},
		"dies":   {Status: guestapi.EndDied, StateLost: true, Cause: "the interpreter ended: connection closed"},
		"lost":   {Status: guestapi.EndDied, StateLost: true, Cause: "E2B no longer has the context"},
	} {
		want.Context, want.Text = true, string(want.Status)
		if _, end := run(code); *end != want {
			t.Errorf("%s ends with %+v, want %+v", code, *end, want)
		}
	}
	if events, _ := run("well"); fmt.Sprint(events) != "[turn output result end]" {
		t.Errorf("it does %v", events)
	}
	if _, end := run("breaks"); end.Status != guestapi.EndDied || !strings.Contains(end.Cause, "broke") {
		t.Errorf("cut off, it ends with %+v", *end)
	}
	if n := c.asked("POST /box" + guestapi.PathContexts); n != 2 {
		t.Errorf("%d contexts were made, want one, and another for the one that was lost", n)
	}

	// Another process knows the names; a box that ends leaves none.
	again, err := d.Attach(t.Context(), b.Ref())
	if err != nil {
		t.Fatal(err)
	}
	other := guestapi.NewClient(again.Dial)
	defer other.Close()
	if list, err := other.Contexts(t.Context()); err != nil || len(list) != 1 || list[0].ID != "default-python" {
		t.Errorf("attached: %+v, %v", list, err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(d.opts.StateDir, "e2b", "contexts")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestNoInterpreter: a template without one says so.
func TestNoInterpreter(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	c.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("E2b-Sandbox-Port") != "49999" {
			return false
		}
		http.Error(w, `{"message":"The sandbox is running but port is not open","port":49999}`, http.StatusBadGateway)
		return true
	})
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	_, err := client.Execute(t.Context(), "", &guestapi.ExecuteRequest{ContextID: "c", Create: true, Language: "python", Code: "1"}, nil)
	if !errors.Is(err, sandbox.Unsupported) || !strings.Contains(err.Error(), "no code interpreter") {
		t.Errorf("%v", err)
	}
}

// TestContextStuck has the interpreter make no context for long: nothing else
// waits for that.
func TestContextStuck(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	asked, answer := make(chan struct{}, 9), make(chan struct{})
	well := interpret(map[string]string{"1": ""})
	c.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, guestapi.PathContexts) {
			asked <- struct{}{}
			<-answer
		}
		return well(w, r)
	})
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	var runs sync.WaitGroup
	for range 2 { // the second waits for the context that the first makes
		runs.Go(func() {
			stream, err := client.Execute(t.Context(), "", &guestapi.ExecuteRequest{ContextID: "c", Create: true, Language: "python", Code: "1"}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if err := stream.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if list, err := client.Contexts(ctx); err != nil || len(list) > 0 {
		t.Errorf("meanwhile: %v, %v", list, err)
	}
	close(answer)
	runs.Wait()
	if n := len(asked); n > 0 {
		t.Errorf("%d more were made", n)
	}
}
