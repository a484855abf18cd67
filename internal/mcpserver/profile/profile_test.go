package profile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testEngine keeps sandboxes of the images it has, and one run's output.
type testEngine struct {
	Engine // nil: what a test does not expect panics

	images map[string]error // what creating one gives

	mu   sync.Mutex
	made []sandbox.Sandbox

	chunks  []chunk
	omitted sandbox.Omitted
}

type chunk struct {
	stream sandbox.StreamName
	text   string
}

func (e *testEngine) Create(_ context.Context, _ sandbox.Principal, r sandbox.CreateRequest) (sandbox.Sandbox, error) {
	if err := e.images[r.Image]; err != nil {
		return sandbox.Sandbox{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	sb := sandbox.Sandbox{ID: sandbox.NewID(), Name: r.Name, Image: r.Image, State: sandbox.Running}
	e.made = append(e.made, sb)
	return sb, nil
}

func (e *testEngine) List(context.Context, sandbox.Principal) ([]sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]sandbox.Sandbox(nil), e.made...), nil
}

func (e *testEngine) find(id string) *sandbox.Sandbox {
	for i := range e.made {
		if e.made[i].ID == id {
			return &e.made[i]
		}
	}
	return nil
}

func (e *testEngine) Get(_ context.Context, _ sandbox.Principal, id string) (sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if sb := e.find(id); sb != nil {
		return *sb, nil
	}
	return sandbox.Sandbox{}, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %q", id)
}

func (e *testEngine) Stop(_ context.Context, _ sandbox.Principal, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.find(id).State = sandbox.Stopped
	return nil
}

func (e *testEngine) Output(context.Context, sandbox.Principal, string, int) (sandbox.Output, error) {
	out := sandbox.Output{Omitted: e.omitted}
	for _, c := range e.chunks {
		if c.stream == sandbox.Stdout {
			out.Stdout += c.text
		} else {
			out.Stderr += c.text
		}
	}
	return out, nil
}

func (e *testEngine) Follow(_ context.Context, _ sandbox.Principal, _ string, emit func(sandbox.StreamName, []byte) error) error {
	for _, c := range e.chunks {
		if err := emit(c.stream, []byte(c.text)); err != nil {
			return err
		}
	}
	return nil
}

func TestCreateDefault(t *testing.T) {
	unavailable := sandbox.Errorf(sandbox.Unavailable, "no way to the registry")
	full := sandbox.Errorf(sandbox.Exhausted, "too many sandboxes")
	tests := map[string]struct {
		images map[string]error
		image  string // that comes of it; "" is an error
		kind   sandbox.Kind
		noted  bool
	}{
		"it is there":             {nil, "theirs", "", false},
		"it is not to be had":     {map[string]error{"theirs": unavailable}, sandbox.ImageHost, "", true},
		"neither is the host's":   {map[string]error{"theirs": unavailable, sandbox.ImageHost: errors.New("none here")}, "", sandbox.Unavailable, false},
		"it is not the image":     {map[string]error{"theirs": full}, "", sandbox.Exhausted, false},
		"the server fails itself": {map[string]error{"theirs": errors.New("a fault")}, "", sandbox.Internal, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := Options{Engine: &testEngine{images: tt.images}, Log: slog.New(slog.NewTextHandler(&log, nil))}
			sb, note, err := CreateDefault(t.Context(), o, "p", sandbox.CreateRequest{}, "theirs")
			if sandbox.KindOf(err) != tt.kind || sb.Image != tt.image {
				t.Errorf("image %q, %v; want %q, kind %q", sb.Image, err, tt.image, tt.kind)
			}
			if said := strings.Contains(note, "theirs") && strings.Contains(log.String(), "theirs"); said != tt.noted {
				t.Errorf("note %q, log %q; want both to say so: %v", note, log.String(), tt.noted)
			}
		})
	}
}

func TestReadOutput(t *testing.T) {
	e := &testEngine{chunks: []chunk{{sandbox.Stdout, "a\n"}, {sandbox.Stderr, "b\n"}, {sandbox.Stdout, "c"}}}
	out, err := ReadOutput(t.Context(), e, "p", "run", 0)
	if err != nil || out.Merged != "a\nb\nc" || out.Stdout != "a\nc" || out.Stderr != "b\n" {
		t.Errorf("in order: %+v, %v", out, err)
	}
	e.omitted.StdoutBytes = 1
	out, err = ReadOutput(t.Context(), e, "p", "run", 0)
	if err != nil || out.Merged != "a\nc\nb\n" {
		t.Errorf("where not all is shown: %q, %v; want the streams one after the other", out.Merged, err)
	}
	e = &testEngine{chunks: []chunk{{sandbox.Stderr, "only"}}}
	if out, err = ReadOutput(t.Context(), e, "p", "run", 0); err != nil || out.Merged != "only" {
		t.Errorf("one stream: %q, %v", out.Merged, err)
	}
}

func TestSandboxes(t *testing.T) {
	e := &testEngine{}
	s := NewSandboxes(Options{Engine: e, Detached: true}, "test")
	create := func(name string) (sandbox.Sandbox, error) {
		return e.Create(t.Context(), "p", sandbox.CreateRequest{Name: name})
	}
	if _, err := s.Find(t.Context(), "p", "one"); !errors.Is(err, sandbox.NotFound) {
		t.Fatalf("before: %v; want not found", err)
	}
	// Many make the same at once, and there is one.
	ids := make([]string, 20)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			id, _, err := s.Make(t.Context(), "p", "one", create)
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || len(e.made) != 1 {
			t.Fatalf("%d sandboxes, ids %v; want one", len(e.made), ids)
		}
	}
	if len(s.turns) != 0 {
		t.Errorf("%d turns are kept that nobody waits for", len(s.turns))
	}
	// Another process finds a detached one, and only then.
	if id, err := NewSandboxes(Options{Engine: e, Detached: true}, "test").Find(t.Context(), "p", "one"); err != nil || id != ids[0] {
		t.Errorf("after a restart: %q, %v; want %q", id, err, ids[0])
	}
	for name, other := range map[string]*Sandboxes{
		"another profile":               NewSandboxes(Options{Engine: e, Detached: true}, "tes"),
		"a process with its own client": NewSandboxes(Options{Engine: e}, "test"),
	} {
		if names, err := other.Names(t.Context(), "p"); err != nil || len(names) != 0 {
			t.Errorf("%s has %v, %v; want none", name, names, err)
		}
	}
	// One that stopped by itself is no more, and can be made again.
	if err := e.Stop(t.Context(), "p", ids[0]); err != nil {
		t.Fatal(err)
	}
	id, made, err := s.Make(t.Context(), "p", "one", create)
	if err != nil || !made || id == ids[0] {
		t.Errorf("after it stopped: %q, made %v, %v; want a new one", id, made, err)
	}
	if names, err := s.Names(t.Context(), "p"); err != nil || !cmp.Equal(names, []string{"one"}) {
		t.Errorf("names %v, %v", names, err)
	}
	if err := s.Close(t.Context(), "p", "one"); err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context(), "p", "one"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("closed twice: %v; want not found", err)
	}
	if len(s.known) != 0 {
		t.Errorf("%v is remembered of what is gone", s.known)
	}
}

func TestMakeThatFailsLeavesNothing(t *testing.T) {
	e := &testEngine{}
	s := NewSandboxes(Options{Engine: e}, "test")
	fail := errors.New("no")
	if _, _, err := s.Make(t.Context(), "p", "x", func(string) (sandbox.Sandbox, error) { return sandbox.Sandbox{}, fail }); !errors.Is(err, fail) {
		t.Fatalf("Make: %v; want %v", err, fail)
	}
	if _, err := s.Find(t.Context(), "p", "x"); !errors.Is(err, sandbox.NotFound) || len(s.known)+len(s.turns) > 0 {
		t.Errorf("after a failure: %v, %v, %v; want nothing", err, s.known, s.turns)
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "with spaces, ü and /": true, strings.Repeat("x", maxName): true,
		"": false, "line\nend": false, strings.Repeat("x", maxName+1): false,
	} {
		if err := CheckName("session_id", name); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "session_id") {
			t.Errorf("%.10q: %v", name, err)
		}
	}
}

func TestTyped(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"},"n":{"type":"array"}},"required":["a"]}`
	type in struct {
		A string   `json:"a"`
		N []string `json:"n"`
	}
	run := Typed(schema, func(_ context.Context, _ Call, in in) (Result, error) { return JSON(in) })
	for args, want := range map[string]string{
		``:                      "a is required",
		`null`:                  "a is required",
		`{"a":null}`:            "a is required",
		`[1]`:                   "arguments: not a JSON object of arguments by name",
		`{"a":1}`:               "a: a number is not a string",
		`{"a":"x","n":"y"}`:     "n: a string is not an array",
		`{"a":"x","unknown":1}`: "",
		`{"a":"<&>"}`:           "",
	} {
		r, err := run(t.Context(), Call{}, json.RawMessage(args))
		if want != "" {
			if err == nil || err.Error() != want || !errors.Is(err, sandbox.Invalid) {
				t.Errorf("%s: %v; want %q", args, err, want)
			}
			continue
		}
		if err != nil || len(r.Texts) != 1 {
			t.Errorf("%s: %v, %v", args, r, err)
		}
	}
	if r, err := run(t.Context(), Call{}, json.RawMessage(`{"a":"<&>"}`)); err != nil || !strings.Contains(r.Texts[0], `"a": "<&>"`) {
		t.Errorf("text %q, %v; want it as it is", r.Texts, err)
	}
}
