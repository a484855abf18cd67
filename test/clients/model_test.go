//go:build linux

// Package clients drives real MCP clients, as they come from npm, with scripted
// models on the loopback interface. A test asserts what reaches the model: the
// definitions of tools, and the results of calls as text and pictures. The
// results are the table of docs/clients.md.
package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A step is one call of a tool by the scripted model.
type step struct {
	name string // of the step, for the test
	tool string // Glovebox's name of the tool
	// args returns the arguments. The model knows only what reached it so far.
	args func(m *model) map[string]any
}

// seen is the result of one call as it reached the model.
type seen struct {
	text     string
	pictures int
}

// definition is a tool as it reached the model.
type definition struct {
	namespace string // of the Responses API, otherwise empty
	name      string
	size      int // of its JSON
}

// A toolCall is the answer of the scripted model: a call, or the end if it is nil.
type toolCall struct {
	id              string
	namespace, name string
	args            map[string]any
}

// A request is a request to the model in the form that all APIs share.
type request struct {
	tools   []definition
	results map[string]seen // by the ID of the call
}

// A model makes the calls of a script, one at a time, and records what reaches it.
type model struct {
	url  string
	bare bool // the client may name a tool as the server does

	mu      sync.Mutex
	steps   []step
	results []seen // of the steps so far
	tools   []definition
	// deferred means that the model had to search for the tools.
	deferred bool
	log      []string // one line for each request
	faults   []string
}

// newModel serves a model with a script on the loopback interface until the test
// ends.
func newModel(t *testing.T, steps []step) *model {
	t.Helper()
	m := &model{steps: steps}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", m.messages)
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"input_tokens": 1})
	})
	mux.HandleFunc("POST /v1/responses", m.responses)
	mux.HandleFunc("POST /v1/chat/completions", m.chat)
	mux.HandleFunc("POST /v1beta/models/{method}", m.gemini)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"object": "list", "data": []any{}})
	})
	mux.HandleFunc("/", http.NotFound) // clients ask for more, and live without
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.log = append(m.log, r.Method+" "+r.URL.Path)
		m.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// decode reads the body of a request. CLIENTS_DUMP names a directory that gets a
// copy, to see how a new version of a client writes requests.
func (m *model) decode(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		if dir := os.Getenv("CLIENTS_DUMP"); dir != "" {
			m.mu.Lock()
			name := fmt.Sprintf("%s-%03d.json", strings.ReplaceAll(m.url[len("http://127.0.0.1:"):], "/", ""), len(m.log))
			m.mu.Unlock()
			_ = os.WriteFile(filepath.Join(dir, name), body, 0o600)
		}
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		m.mu.Lock()
		m.faults = append(m.faults, fmt.Sprintf("%s %s: %v", r.Method, r.URL.Path, err))
		m.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// next records a request and returns the next call of the script, or nil if the
// script has ended or the request has none of our tools. A client repeats its whole
// history in each request, so the results in it say where the script is.
func (m *model) next(r request) *toolCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for ; n < len(m.steps); n++ {
		result, ok := r.results[callID(n)]
		if !ok {
			break
		}
		if n == len(m.results) {
			m.results = append(m.results, result)
			m.log = append(m.log, fmt.Sprintf("  result of %s: %d characters, %d pictures: %.2000s", m.steps[n].name, len(result.text), result.pictures, result.text))
		}
	}
	if n == len(m.steps) {
		return nil
	}
	s := m.steps[n]
	d, ok := find(r.tools, s.tool, m.bare)
	if !ok {
		if call := m.search(r); call != nil {
			return call
		}
		m.log = append(m.log, fmt.Sprintf("  %d tools without %s", len(r.tools), s.tool))
		return nil
	}
	m.tools = r.tools
	args := s.args(m)
	m.log = append(m.log, fmt.Sprintf("  call of %s (%s): %v", d.name, s.name, args))
	return &toolCall{id: callID(n), namespace: d.namespace, name: d.name, args: args}
}

// newID returns the identifier of an answer. Some frameworks keep only the last of
// two messages with one identifier.
func (m *model) newID(kind string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%s_%d", kind, len(m.log))
}

func callID(n int) string { return fmt.Sprintf("call_%03d", n) }

// searchTool is the tool of Claude Code that loads the definitions of deferred tools.
const searchTool, searchID = "ToolSearch", "call_search"

// search returns the call that loads the tools of the script, if the client has
// deferred them and they were not searched for before.
func (m *model) search(r request) *toolCall {
	_, searched := r.results[searchID]
	if searched || !slices.ContainsFunc(r.tools, func(d definition) bool { return d.name == searchTool }) {
		return nil
	}
	m.deferred = true
	var names []string
	for _, s := range m.steps {
		if name := "mcp__glovebox__" + s.tool; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	m.log = append(m.log, "  search of tools")
	return &toolCall{id: searchID, name: searchTool, args: map[string]any{"query": "select:" + strings.Join(names, ","), "max_results": len(names)}}
}

// find returns the definition of a tool of ours. Agents put the name of the server
// before it, each in its way; frameworks may not.
func find(tools []definition, tool string, bare bool) (definition, bool) {
	i := slices.IndexFunc(tools, func(d definition) bool {
		return strings.HasSuffix(d.name, "_"+tool) && strings.Contains(d.name, "glovebox") ||
			d.name == tool && strings.Contains(d.namespace, "glovebox")
	})
	if i < 0 && bare {
		i = slices.IndexFunc(tools, func(d definition) bool { return d.name == tool })
	}
	if i < 0 {
		return definition{}, false
	}
	return tools[i], true
}

// result returns the result of a step, by its name. The caller holds the lock, or
// the conversation has ended.
func (m *model) result(name string) (seen, bool) {
	for i, s := range m.steps[:len(m.results)] {
		if s.name == name {
			return m.results[i], true
		}
	}
	return seen{}, false
}

// transcript returns what happened, for the message of a failed test.
func (m *model) transcript() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(append(slices.Clone(m.log), m.faults...), "\n")
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// events writes server-sent events.
type events struct{ w http.ResponseWriter }

func newEvents(w http.ResponseWriter) events {
	w.Header().Set("Content-Type", "text/event-stream")
	return events{w}
}

// send writes one event; a name is optional.
func (e events) send(name string, v any) {
	if name != "" {
		fmt.Fprintf(e.w, "event: %s\n", name)
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // the server answers 500, and the client fails
	}
	fmt.Fprintf(e.w, "data: %s\n\n", data)
}

func compactJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
