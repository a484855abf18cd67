// Package templates serves the part of E2B's protocol that builds templates, over
// package template.
//
// Only package e2bapi imports it, and package app makes the [API]. The handlers of an
// [API] return a status and a value to encode, or an error; package e2bapi does the
// rest.
package templates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/jsonbound"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/template"
)

// A Service builds and keeps templates. Package template implements it.
type Service interface {
	Request(ctx context.Context, p sandbox.Principal, o template.Order) (template.Template, template.Build, error)
	HasFiles(ctx context.Context, p sandbox.Principal, idOrName, hash string) (template.Template, bool, error)
	Upload(ctx context.Context, p sandbox.Principal, hash string, size int64, r io.Reader) error
	Begin(ctx context.Context, p sandbox.Principal, template, build string, plan template.Plan) error
	Build(ctx context.Context, p sandbox.Principal, template, build string) (template.Build, error)
	Logs(ctx context.Context, p sandbox.Principal, template, build string, least template.Level) ([]template.Entry, error)
	List(ctx context.Context, p sandbox.Principal) ([]template.Template, error)
	Get(ctx context.Context, p sandbox.Principal, idOrName string) (template.Template, []template.Build, error)
	Delete(ctx context.Context, p sandbox.Principal, idOrName string) error
	Tags(ctx context.Context, p sandbox.Principal, idOrName string) ([]template.Tag, error)
	Tag(ctx context.Context, p sandbox.Principal, target string, tags []string) (build string, given []string, err error)
	Untag(ctx context.Context, p sandbox.Principal, idOrName string, tags []string) error
	Resolve(ctx context.Context, p sandbox.Principal, idOrName string) (template.Template, template.Build, error)
	Owner(ctx context.Context, template string) (sandbox.Principal, error)
	Limits(setup template.Setup) sandbox.Limits
	Start(ctx context.Context, p sandbox.Principal, sandboxID string, setup template.Setup) error
	Used(ctx context.Context, template string) error
}

// Options are the arguments of [New]. All but Domain must be set.
type Options struct {
	Service Service
	// Access signs the addresses for uploads.
	Access Access
	// Domain is the domain at which clients reach the server with TLS, or "".
	Domain string
	// AgentVersion is the version of E2B's agent in sandboxes.
	AgentVersion string
	Now          func() time.Time
}

// An Access makes and checks texts that prove that this server made another text.
type Access interface {
	Token(text string) string
	Check(text, token string) bool
}

// An API serves the requests of templates.
type API struct{ opts Options }

// New returns an API.
func New(o Options) *API { return &API{o} }

// A Handler answers a request of a principal with a status and a value, which is
// encoded as JSON; nil is no body.
type Handler func(r *http.Request, p sandbox.Principal) (status int, answer any, err error)

// Routes returns the handlers by the patterns of [http.ServeMux].
func (a *API) Routes() map[string]Handler {
	return map[string]Handler{
		"POST /v3/templates":                        a.request,
		"POST /v2/templates":                        a.request,
		"GET /templates":                            a.list,
		"GET /v2/templates":                         a.list,
		"GET /templates/{id}":                       a.get,
		"DELETE /templates/{id}":                    a.remove,
		"PATCH /templates/{id}":                     a.update,
		"PATCH /v2/templates/{id}":                  a.update,
		"GET /templates/{id}/files/{hash}":          a.files,
		"PUT /templates/{id}/files/{hash}":          a.upload,
		"POST /v2/templates/{id}/builds/{build}":    a.begin,
		"GET /templates/{id}/builds/{build}/status": a.status,
		"GET /templates/{id}/builds/{build}/logs":   a.logs,
		"POST /templates/tags":                      a.tag,
		"DELETE /templates/tags":                    a.untag,
		// {what} can only be "tags"; a literal would conflict with aliases/{alias}.
		"GET /templates/{id}/{what}": a.tags,
	}
}

// Bounds on the body of a request: its bytes, and the values of its JSON. A value
// takes about 100 bytes of memory, however short it is.
const (
	maxBody   = 4 << 20
	maxValues = 50_000
)

// readBody decodes a request's body. It refuses unknown fields, because they may ask
// for something that the server cannot do.
func readBody(r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "request: %w", err)
	}
	if jsonbound.Values(body) > maxValues {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "request: the body has more than %d JSON values", maxValues), "use fewer steps and arguments")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err = d.Decode(v)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("the body has more than one JSON value")
	}
	return sandbox.Errorf(sandbox.Invalid, "request: %w", err)
}

// request is the body of POST /templates in the versions 2 and 3.
type request struct {
	Name     string   `json:"name"`
	Alias    string   `json:"alias"` // the name, of older SDKs
	Tags     []string `json:"tags"`
	TeamID   string   `json:"teamID"` // deprecated, no effect
	CPUCount int      `json:"cpuCount"`
	MemoryMB int64    `json:"memoryMB"`
}

// requested answers a request for a build. The versions before 3 read more fields.
type requested struct {
	TemplateID    string    `json:"templateID"`
	BuildID       string    `json:"buildID"`
	Public        bool      `json:"public"`
	Names         []string  `json:"names"`
	Aliases       []string  `json:"aliases"`
	Tags          []string  `json:"tags"`
	CPUCount      int       `json:"cpuCount"`
	MemoryMB      int64     `json:"memoryMB"`
	DiskSizeMB    int64     `json:"diskSizeMB"`
	CreatedAt     time.Time `json:"createdAt"`
	UpdatedAt     time.Time `json:"updatedAt"`
	CreatedBy     *string   `json:"createdBy"`
	LastSpawnedAt *string   `json:"lastSpawnedAt"`
	SpawnCount    int64     `json:"spawnCount"`
	BuildCount    int       `json:"buildCount"`
	EnvdVersion   string    `json:"envdVersion"`
}

func (a *API) request(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in request
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	if in.Name == "" {
		in.Name = in.Alias
	}
	t, b, err := a.opts.Service.Request(r.Context(), p, template.Order{Name: in.Name, Tags: in.Tags, CPUs: in.CPUCount, MemoryMB: in.MemoryMB})
	if err != nil {
		return 0, nil, err
	}
	limits := a.opts.Service.Limits(template.Setup{CPUs: in.CPUCount, MemoryMB: in.MemoryMB})
	return http.StatusAccepted, requested{
		TemplateID: t.ID, BuildID: b.ID, Names: []string{t.Name}, Aliases: []string{t.Name}, Tags: b.Tags,
		CPUCount: max(1, int(limits.CPUs)), MemoryMB: limits.MemoryBytes >> 20, CreatedAt: t.Created, UpdatedAt: t.Updated,
		SpawnCount: t.Uses, BuildCount: t.Builds, EnvdVersion: a.opts.AgentVersion,
	}, nil
}

// A step is a step of a build as the SDKs write it.
type step struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"`
	// Force asks for a step without a cache. There is no cache of steps: each build
	// runs all of them.
	Force bool `json:"force"`
	// The others are for the SDK itself.
	ForceUpload     *bool `json:"forceUpload"`
	ResolveSymlinks *bool `json:"resolveSymlinks"`
	Gzip            *bool `json:"gzip"`
}

// plan is the body of POST /v2/templates/{id}/builds/{build}.
type plan struct {
	FromImage         string          `json:"fromImage"`
	FromTemplate      string          `json:"fromTemplate"`
	FromImageRegistry json.RawMessage `json:"fromImageRegistry"`
	Force             bool            `json:"force"` // as in a step
	Steps             []step          `json:"steps"`
	StartCmd          string          `json:"startCmd"`
	ReadyCmd          string          `json:"readyCmd"`
}

func (a *API) begin(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in plan
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	if len(in.FromImageRegistry) > 0 && string(in.FromImageRegistry) != "null" {
		err := sandbox.Errorf(sandbox.Unsupported, "fromImageRegistry: this server takes no credentials of registries")
		return 0, nil, sandbox.WithHint(err, "have the operator fetch the image with glovebox images pull, and name it with fromImage")
	}
	out := template.Plan{FromImage: in.FromImage, FromTemplate: in.FromTemplate, Start: in.StartCmd, Ready: in.ReadyCmd}
	for _, s := range in.Steps {
		out.Steps = append(out.Steps, template.Step{Type: s.Type, Args: s.Args, FilesHash: s.FilesHash})
	}
	err := a.opts.Service.Begin(r.Context(), p, r.PathValue("id"), r.PathValue("build"), out)
	return http.StatusAccepted, nil, err
}

// stateOf returns the state of a build in E2B's words.
func stateOf(b template.Build) string {
	switch b.Status {
	case template.Ready:
		return "ready"
	case template.Failed:
		return "error"
	case template.Running:
		return "building"
	}
	return "waiting"
}

// A reason says why a build failed.
type reason struct {
	Message    string           `json:"message"`
	Step       string           `json:"step,omitempty"`
	LogEntries []template.Entry `json:"logEntries"`
}

// maxEntries is the largest and the default number of log entries in an answer.
const maxEntries = 100

func (a *API) status(r *http.Request, p sandbox.Principal) (int, any, error) {
	offset, err := number(r, "logsOffset", 0, 1<<31-1)
	if err != nil {
		return 0, nil, err
	}
	limit, err := number(r, "limit", maxEntries, maxEntries)
	if err != nil {
		return 0, nil, err
	}
	// The state is read before the log: a client that sees the end of a build finds
	// all of its log.
	b, err := a.opts.Service.Build(r.Context(), p, r.PathValue("id"), r.PathValue("build"))
	if err != nil {
		return 0, nil, err
	}
	entries, err := a.opts.Service.Logs(r.Context(), p, b.Template, b.ID, template.Level(r.URL.Query().Get("level")))
	if err != nil {
		return 0, nil, err
	}
	entries = entries[min(offset, len(entries)):]
	entries = entries[:min(limit, len(entries))]
	out := struct {
		TemplateID string           `json:"templateID"`
		BuildID    string           `json:"buildID"`
		Status     string           `json:"status"`
		Logs       []string         `json:"logs"`
		LogEntries []template.Entry `json:"logEntries"`
		Reason     *reason          `json:"reason,omitempty"`
	}{b.Template, b.ID, stateOf(b), []string{}, append([]template.Entry{}, entries...), nil}
	for _, e := range entries {
		out.Logs = append(out.Logs, e.Message)
	}
	if b.Reason != "" {
		out.Reason = &reason{b.Reason, b.Step, []template.Entry{}}
	}
	return http.StatusOK, out, nil
}

// logs answers with entries from a time on, or before it, in E2B's pages.
func (a *API) logs(r *http.Request, p sandbox.Principal) (int, any, error) {
	limit, err := number(r, "limit", maxEntries, maxEntries)
	if err != nil {
		return 0, nil, err
	}
	q := r.URL.Query()
	backward := q.Get("direction") == "backward"
	if d := q.Get("direction"); d != "" && d != "forward" && !backward {
		return 0, nil, sandbox.Errorf(sandbox.Invalid, "direction: %s is neither forward nor backward", short(d))
	}
	cursor := int64(-1) // in milliseconds
	if text := q.Get("cursor"); text != "" {
		if cursor, err = strconv.ParseInt(text, 10, 64); err != nil || cursor < 0 {
			return 0, nil, sandbox.Errorf(sandbox.Invalid, "cursor: %s is not a time in milliseconds", short(text))
		}
	}
	entries, err := a.opts.Service.Logs(r.Context(), p, r.PathValue("id"), r.PathValue("build"), template.Level(q.Get("level")))
	if err != nil {
		return 0, nil, err
	}
	list := []template.Entry{}
	for i := range entries {
		e := entries[i]
		if backward {
			e = entries[len(entries)-1-i]
		}
		at := e.Time.UnixMilli()
		if len(list) < limit && (cursor < 0 || backward && at <= cursor || !backward && at >= cursor) {
			list = append(list, e)
		}
	}
	return http.StatusOK, struct {
		Logs []template.Entry `json:"logs"`
	}{list}, nil
}

// number returns a parameter between 0 and most.
func number(r *http.Request, name string, absent, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, sandbox.Errorf(sandbox.Invalid, "%s: %s is not between 0 and %d", name, short(text), most)
	}
	return n, nil
}

func (a *API) tag(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	build, tags, err := a.opts.Service.Tag(r.Context(), p, in.Target, in.Tags)
	return http.StatusCreated, struct {
		BuildID string   `json:"buildID"`
		Tags    []string `json:"tags"`
	}{build, tags}, err
}

func (a *API) untag(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, a.opts.Service.Untag(r.Context(), p, in.Name, in.Tags)
}

func (a *API) tags(r *http.Request, p sandbox.Principal) (int, any, error) {
	if r.PathValue("what") != "tags" {
		return 0, nil, sandbox.Errorf(sandbox.NotFound, "there is no %s %s in E2B's API", r.Method, short(r.URL.Path))
	}
	tags, err := a.opts.Service.Tags(r.Context(), p, r.PathValue("id"))
	type tag struct {
		Tag       string    `json:"tag"`
		BuildID   string    `json:"buildID"`
		CreatedAt time.Time `json:"createdAt"`
	}
	list := []tag{}
	for _, g := range tags {
		list = append(list, tag{g.Tag, g.Build, g.Created})
	}
	return http.StatusOK, list, err
}

// short quotes and truncates a client's text for an error message.
func short(s string) string { return fmt.Sprintf("%.80q", s) }
