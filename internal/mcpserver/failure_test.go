package mcpserver

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestErrorResult checks that programs and models are told the same of an error.
func TestErrorResult(t *testing.T) {
	arguments := []string{"code", "env", "memory_mb", "packages", "sandbox_id"}
	busy := sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Exhausted, "the server has no room"), 1500*time.Millisecond)
	for _, tt := range []struct {
		name string
		err  error
		want sandbox.Problem
		text string
	}{
		{"Argument", sandbox.Errorf(sandbox.Invalid, "code: 5 is not a string"),
			sandbox.Problem{Kind: sandbox.Invalid, Message: "code: 5 is not a string", Argument: "code"}, "code: 5 is not a string"},
		{"Operation", sandbox.Wrap(sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "sandbox_id: there is none"), "make one"), "start run", ""),
			sandbox.Problem{Kind: sandbox.NotFound, Message: "start run: sandbox_id: there is none", Argument: "sandbox_id", Hint: "make one"},
			"start run: sandbox_id: there is none\nhint: make one"},
		{"PartOfAnArgument", sandbox.Errorf(sandbox.Invalid, "env.A: 1 is not a string"),
			sandbox.Problem{Kind: sandbox.Invalid, Message: "env.A: 1 is not a string", Argument: "env"}, "env.A: 1 is not a string"},
		{"Item", sandbox.Errorf(sandbox.Invalid, "packages[3]: 1 is not a string"),
			sandbox.Problem{Kind: sandbox.Invalid, Message: "packages[3]: 1 is not a string", Argument: "packages"}, "packages[3]: 1 is not a string"},
		{"Unit", sandbox.Wrap(sandbox.Errorf(sandbox.Invalid, "memory: 1 EiB is too much"), "create sandbox", "sbx_x"),
			sandbox.Problem{Kind: sandbox.Invalid, Message: "create sandbox sbx_x: memory: 1 EiB is too much", Argument: "memory_mb"},
			"create sandbox sbx_x: memory: 1 EiB is too much"},
		{"NoArgument", sandbox.Errorf(sandbox.Invalid, "path: code: no"),
			sandbox.Problem{Kind: sandbox.Invalid, Message: "path: code: no"}, "path: code: no"},
		{"Retry", busy,
			sandbox.Problem{Kind: sandbox.Exhausted, Message: "the server has no room", Hint: "try again in 2s", RetryAfter: 2},
			"the server has no room\nhint: try again in 2s"},
		{"RetryWithAHint", sandbox.WithHint(busy, "stop one"),
			sandbox.Problem{Kind: sandbox.Exhausted, Message: "the server has no room", Hint: "stop one", RetryAfter: 2},
			"the server has no room\nhint: stop one"},
		{"Internal", errors.New("boom"),
			sandbox.Problem{Kind: sandbox.Internal, Message: "internal error: the request was fine, the server failed: boom"},
			"internal error: the request was fine, the server failed: boom"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := answer.Failure(tt.err, arguments, func(text string) string { return text })
			if diff := cmp.Diff(tt.want, structured[sandbox.Problem](t, res)); diff != "" {
				t.Errorf("structuredContent (-want +got):\n%s", diff)
			}
			if !res.IsError || text(res) != tt.text {
				t.Errorf("isError %v, text %q; want %q", res.IsError, text(res), tt.text)
			}
		})
	}
}

// TestErrorsFitOutputSchemas checks errors as clients do that compare the
// structuredContent of every result with the tool's output schema.
func TestErrorsFitOutputSchemas(t *testing.T) {
	s, _ := newTestServer(t, withFiles)
	var failed any
	full := sandbox.Problem{Kind: sandbox.Exhausted, Message: "m", Argument: "a", Hint: "h", RetryAfter: 1}
	b, err := json.Marshal(full)
	if err == nil {
		err = json.Unmarshal(b, &failed)
	}
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, tool := range s.tools() {
		if tool.output == "" {
			continue
		}
		var schema jsonschema.Schema
		if err := json.Unmarshal([]byte(tool.output), &schema); err != nil {
			t.Fatalf("%s: %v", tool.name, err)
		}
		for name := range failed.(map[string]any) {
			if schema.Properties[name] != nil {
				t.Errorf("%s: results and errors share the field %s", tool.name, name)
			}
		}
		resolved, err := schema.Resolve(nil)
		if err != nil {
			t.Fatalf("%s: %v", tool.name, err)
		}
		if err := resolved.Validate(failed); err != nil {
			t.Errorf("%s: an error does not fit: %v", tool.name, err)
		}
		checked++
	}
	if checked < 8 {
		t.Errorf("%d output schemas were checked", checked)
	}
}

// TestEveryErrorHasAKind calls tools wrongly in every way that fails before the
// engine or in it.
func TestEveryErrorHasAKind(t *testing.T) {
	s, _ := newTestServer(t, nil)
	url := serveHTTP(t, s)
	alice, files := connectHTTP(t, url, "alice", nil), connectHTTP(t, url, "alice/files", nil)
	for name, tt := range map[string]struct {
		tool string
		args args
		want sandbox.Problem
	}{
		"missing":  {"run_code", args{}, sandbox.Problem{Kind: sandbox.Invalid, Argument: "code"}},
		"unknown":  {"get_run", args{"run_id": "no"}, sandbox.Problem{Kind: sandbox.NotFound, Argument: "run_id"}},
		"full":     {"run_code", args{"code": "fail exhausted"}, sandbox.Problem{Kind: sandbox.Exhausted}},
		"internal": {"run_code", args{"code": "fail internal"}, sandbox.Problem{Kind: sandbox.Internal}},
		"panic":    {"run_code", args{"code": "panic"}, sandbox.Problem{Kind: sandbox.Internal}},
	} {
		res := callTool(t, alice, tt.tool, tt.args)
		got := structured[sandbox.Problem](t, res)
		if !strings.HasPrefix(text(res), got.Message) || got.Message == "" {
			t.Errorf("%s: message %q, text %q", name, got.Message, text(res))
		}
		got.Message, got.Hint = "", ""
		if diff := cmp.Diff(tt.want, got); diff != "" || !res.IsError {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	res := callTool(t, files, "run_code", args{"code": "out"})
	if got := structured[sandbox.Problem](t, res); got.Kind != sandbox.Forbidden || got.Hint == "" {
		t.Errorf("without the right: %+v", got)
	}
}

// TestErrorsOfProfiles keeps the form of the errors of the replaced servers: a
// text, and nothing for programs.
func TestErrorsOfProfiles(t *testing.T) {
	for name, want := range map[string]string{"its own": "theirs: no good", "none of its own": "no good"} {
		p := testProfile("x", new(atomic.Int32))
		if name == "none of its own" {
			p.Failure = nil
		}
		s, _ := newTestServer(t, func(o *Options) { o.Profile = p })
		res := callTool(t, serveStdio(t, s, nil), "fail", nil)
		if !res.IsError || text(res) != want || res.StructuredContent != nil {
			t.Errorf("%s: %q, %v", name, text(res), res.StructuredContent)
		}
	}
}
