package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func newForward(ctx context.Context, path, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x"+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return req
}

func (e *Engine) mustForward(tb testing.TB, id, path, body string) *http.Response {
	tb.Helper()
	resp, err := e.Forward(alice, id, sandbox.ProgramDefaults{Dir: "~"}, newForward(context.Background(), path, body))
	if err != nil {
		tb.Fatalf("forward: %v", err)
	}
	return resp
}

// TestForwardIsUse: what is being forwarded keeps the sandbox awake and alive,
// and what has ended does not.
func TestForwardIsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: 10 * time.Second}})
		ctx, cancel := context.WithCancel(context.Background())
		resp, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~"}, newForward(ctx, "/hold", ""))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Running {
			t.Fatalf("a sandbox in use is %s: %s", got.State, got.Cause)
		}
		if w.only(t).isPaused() {
			t.Error("a sandbox in use is paused")
		}
		cancel()
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the answer went on after the request's end")
		}
		resp.Body.Close()
		resp.Body.Close() // again does nothing
		time.Sleep(time.Second)
		if !w.only(t).isPaused() {
			t.Error("a sandbox that nothing uses is not paused")
		}
		time.Sleep(time.Minute)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped {
			t.Errorf("a sandbox that nothing used for a minute is %s", got.State)
		}
		_, err = e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~"}, newForward(context.Background(), "/files", ""))
		if !errors.Is(err, sandbox.Conflict) {
			t.Errorf("forward to a stopped sandbox: %v; want conflict", err)
		}
	})
}

func TestForwardIsForTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		ctx := context.Background()
		if _, err := e.Forward("mallory", s.ID, sandbox.ProgramDefaults{}, newForward(ctx, "/files", "")); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("forward: %v; want not found", err)
		}
		for name, f := range map[string]func() error{
			"hibernate": func() error { return e.Hibernate(ctx, "mallory", s.ID) },
			"wake":      func() error { return e.Wake(ctx, "mallory", s.ID) },
			"set end":   func() error { _, err := e.SetEnd(ctx, "mallory", s.ID, time.Minute); return err },
		} {
			if err := f(); !errors.Is(err, sandbox.NotFound) {
				t.Errorf("%s: %v; want not found", name, err)
			}
		}
		if p, err := e.Owner(ctx, s.ID); err != nil || p != alice {
			t.Errorf("owner %q, %v", p, err)
		}
		if ids, err := e.Live(ctx); err != nil || len(ids) != 1 || ids[0] != s.ID {
			t.Errorf("live: %q, %v", ids, err)
		}
		if err := e.Stop(ctx, alice, s.ID); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{s.ID, sandbox.NewID(), "x"} {
			if p, err := e.Owner(ctx, id); !errors.Is(err, sandbox.NotFound) {
				t.Errorf("owner of %s: %q, %v; want not found", id, p, err)
			}
		}
	})
}

// TestForwardWithoutTimeout: a program may run as long as its sandbox. Its request
// reaches the guest without a timeout.
func TestForwardWithoutTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), func(o *Options) { o.MaxRunTimeout = sandbox.Forever })
		s := e.mustCreate(t, sandbox.CreateRequest{})
		for timeout, want := range map[string]string{"": "", "0": "", "5000": "5000", "99999999999": "", "1e400": ""} {
			req := newForward(context.Background(), guestapi.ProcStart, string(guestapi.AppendEnvelope(nil, 0, []byte(`{"process":{"cmd":"x"}}`))))
			if timeout != "" {
				req.Header.Set(guestapi.HeaderTimeout, timeout)
			}
			resp, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{}, req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := resp.Header.Get(guestapi.HeaderTimeout); got != want {
				t.Errorf("timeout %q reaches the guest as %q, want %q", timeout, got, want)
			}
		}
		resp := e.mustForward(t, s.ID, guestapi.PathExecute, `{"code":"1"}`)
		var run guestapi.ExecuteRequest
		if err := json.NewDecoder(resp.Body).Decode(&run); err != nil || run.TimeoutMillis != 0 {
			t.Errorf("code has a timeout of %d ms, %v", run.TimeoutMillis, err)
		}
		resp.Body.Close()
	})
}

// TestForwardBounds: the rules of runs hold for programs that a forwarded
// request starts.
func TestForwardBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), func(o *Options) { o.MaxRuns, o.MaxRunTimeout = 2, time.Minute })
		s := e.mustCreate(t, sandbox.CreateRequest{Env: map[string]string{"A": "sandbox", "B": "sandbox"}})
		start := func(timeout, body string) (*http.Response, error) {
			req := newForward(context.Background(), guestapi.ProcStart, string(guestapi.AppendEnvelope(nil, 0, []byte(body))))
			if timeout != "" {
				req.Header.Set(guestapi.HeaderTimeout, timeout)
			}
			return e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~", Env: map[string]string{"A": "default", "D": "default"}}, req)
		}
		for timeout, want := range map[string]string{
			"": "60000", "0": "60000", "5000": "5000", "5000.0": "5000", "0.25": "1", "60001": "60000",
			"86400000": "60000", "86400000.0": "60000", "99999999999": "60000", "1e400": "60000",
		} {
			resp, err := start(timeout, `{"process":{"cmd":"x","envs":{"B":"own"}}}`)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			_, msg, err := guestapi.ReadEnvelope(bytes.NewReader(body), nil, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var got guestapi.StartRequest
			if err := json.Unmarshal(msg, &got); err != nil {
				t.Fatal(err)
			}
			if got.Process.Envs["A"] != "sandbox" || got.Process.Envs["B"] != "own" || got.Process.Envs["D"] != "default" || got.Process.Cwd != "~" {
				t.Errorf("the guest is asked for %+v", got.Process)
			}
			if got := resp.Header.Get(guestapi.HeaderTimeout); got != want {
				t.Errorf("timeout %q reaches the guest as %q, want %q", timeout, got, want)
			}
		}
		for timeout, body := range map[string]string{"-1": `{}`, "x": `{}`, "NaN": `{}`, "1": `{`} {
			if _, err := start(timeout, body); !errors.Is(err, sandbox.Invalid) {
				t.Errorf("timeout %s, request %s: %v; want invalid", timeout, body, err)
			}
		}
		resp := e.mustForward(t, s.ID, guestapi.PathExecute, `{"code":"1","env_vars":{"B":"own"}}`)
		var run guestapi.ExecuteRequest
		if err := json.NewDecoder(resp.Body).Decode(&run); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if run.EnvVars["A"] != "sandbox" || run.EnvVars["B"] != "own" || run.TimeoutMillis != 60_000 || run.Cwd != "~" {
			t.Errorf("the guest is asked for %+v", run)
		}
		resp = e.mustForward(t, s.ID, guestapi.PathExecute, `{"timeout_ms":60001}`)
		if err := json.NewDecoder(resp.Body).Decode(&run); err != nil || run.TimeoutMillis != 60_000 {
			t.Errorf("a run that asks for too much time gets %d ms, %v", run.TimeoutMillis, err)
		}
		resp.Body.Close()
		for _, path := range []string{guestapi.ProcConnect, guestapi.FSWatchDir} {
			for timeout, want := range map[string]string{"": "", "0": "", "90000.0": "90000", "99999999999": "9999999999"} {
				req := newForward(context.Background(), path, "")
				if timeout != "" {
					req.Header.Set(guestapi.HeaderTimeout, timeout)
				}
				resp, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{}, req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if got := resp.Header.Get(guestapi.HeaderTimeout); got != want {
					t.Errorf("%s: timeout %q reaches the guest as %q, want %q", path, timeout, got, want)
				}
			}
		}

		resp = e.mustForward(t, s.ID, guestapi.PathContexts, `{"language":"python","env_vars":{"B":"own"}}`)
		var made map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&made); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		want := map[string]any{"language": "python", "cwd": "~", "env": map[string]any{"A": "sandbox", "B": "own"}}
		if diff := cmp.Diff(want, made); diff != "" {
			t.Errorf("the guest is asked for another context:\n%s", diff)
		}

		ctx, cancel := context.WithCancel(context.Background())
		for range 2 {
			resp, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{}, newForward(ctx, "/hold", ""))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
		}
		if _, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{}, newForward(ctx, "/files", "")); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("a third request: %v; want exhausted", err)
		}
		if _, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print"}}); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("a run beside two requests: %v; want exhausted", err)
		}
		cancel()
	})
}
