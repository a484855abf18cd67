package e2bapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/e2bapi/templates"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/template"
)

const filesHash = "00000000000000000000000000000000000000000000000000000000000000aa"

// fakeTemplates has the template tid of alice, by the name app, with a build in each
// state. It records what it is asked for.
type fakeTemplates struct {
	templates.Service // the rest is not called
	ordered           template.Order
	began             string
	plan              template.Plan
	uploaded          string
	upload            error
	tagged            string
	deleted           string
	started           string
	start             error
	used              string
	taken             bool // mallory has a template with the name "tid"
}

func noTemplate(p sandbox.Principal, name string) error {
	name, _, _ = strings.Cut(name, ":")
	if p == "alice" && (name == "tid" || name == "app") {
		return nil
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no template %q", name)
}

func oneTemplate() template.Template {
	return template.Template{ID: "tid", Principal: "alice", Name: "app", Created: now, Updated: now, Used: now, Uses: 2, Builds: 3}
}

func someBuilds() []template.Build {
	setup := json.RawMessage(`{"cpus":2,"memory_mb":1024,"user":"root","workdir":"/srv","start":"serve"}`)
	return []template.Build{
		{ID: "b3", Template: "tid", Status: template.Failed, Setup: setup, Tags: []string{"v3"}, Reason: "it broke", Step: "2", Created: now, Updated: now, Finished: now},
		{ID: "b2", Template: "tid", Status: template.Ready, Image: "template.glovebox/app:b2", Setup: setup, Tags: []string{"v2"}, Created: now, Updated: now, Finished: now},
		{ID: "b1", Template: "tid", Status: template.Running, Setup: setup, Tags: []string{"v1"}, Created: now, Updated: now},
		{ID: "b0", Template: "tid", Status: "requested", Setup: setup, Created: now, Updated: now},
	}
}

func (f *fakeTemplates) Request(_ context.Context, p sandbox.Principal, o template.Order) (template.Template, template.Build, error) {
	f.ordered = o
	return oneTemplate(), template.Build{ID: "b4", Tags: []string{"v4"}}, noTemplate(p, "app")
}

func (f *fakeTemplates) Limits(s template.Setup) sandbox.Limits {
	return sandbox.Limits{CPUs: float64(s.CPUs), MemoryBytes: s.MemoryMB << 20}
}

func (f *fakeTemplates) HasFiles(_ context.Context, p sandbox.Principal, id, hash string) (template.Template, bool, error) {
	if p == "mallory" && id == "tid" && f.taken {
		return template.Template{ID: "mallorys", Principal: p, Name: id}, false, nil
	}
	return oneTemplate(), f.uploaded != "", noTemplate(p, id)
}

func (f *fakeTemplates) Upload(_ context.Context, p sandbox.Principal, hash string, size int64, r io.Reader) error {
	if f.upload != nil {
		return f.upload
	}
	data, err := io.ReadAll(r)
	f.uploaded = fmt.Sprintf("%s %s %d: %s", p, hash, size, data)
	return err
}

func (f *fakeTemplates) Begin(_ context.Context, p sandbox.Principal, id, build string, plan template.Plan) error {
	f.began, f.plan = id+" "+build, plan
	return noTemplate(p, id)
}

func (f *fakeTemplates) Build(_ context.Context, p sandbox.Principal, id, build string) (template.Build, error) {
	for _, b := range someBuilds() {
		if b.ID == build {
			return b, noTemplate(p, id)
		}
	}
	return template.Build{}, sandbox.Errorf(sandbox.NotFound, "the template has no such build")
}

// Logs has 150 entries, one each second.
func (f *fakeTemplates) Logs(_ context.Context, p sandbox.Principal, id, _ string, least template.Level) ([]template.Entry, error) {
	if least == template.Error {
		return nil, noTemplate(p, id)
	}
	var list []template.Entry
	for i := range 150 {
		list = append(list, template.Entry{Time: now.Add(time.Duration(i) * time.Second), Level: template.Info, Message: fmt.Sprint("line ", i), Step: "1"})
	}
	return list, noTemplate(p, id)
}

func (f *fakeTemplates) List(_ context.Context, p sandbox.Principal) ([]template.Template, error) {
	if p != "alice" {
		return nil, nil
	}
	second := oneTemplate()
	second.ID = "tid2"
	return []template.Template{oneTemplate(), second}, nil
}

func (f *fakeTemplates) Get(_ context.Context, p sandbox.Principal, id string) (template.Template, []template.Build, error) {
	if id == "tid2" {
		return oneTemplate(), nil, nil
	}
	return oneTemplate(), someBuilds(), noTemplate(p, id)
}

func (f *fakeTemplates) Delete(_ context.Context, p sandbox.Principal, id string) error {
	f.deleted = id
	return noTemplate(p, id)
}

func (f *fakeTemplates) Tags(_ context.Context, p sandbox.Principal, id string) ([]template.Tag, error) {
	return []template.Tag{{Tag: "v2", Build: "b2", Created: now}}, noTemplate(p, id)
}

func (f *fakeTemplates) Tag(_ context.Context, p sandbox.Principal, target string, tags []string) (string, []string, error) {
	f.tagged = fmt.Sprint(target, tags)
	return "b2", tags, noTemplate(p, target)
}

func (f *fakeTemplates) Untag(_ context.Context, p sandbox.Principal, name string, tags []string) error {
	f.tagged = fmt.Sprint("-", name, tags)
	return noTemplate(p, name)
}

func (f *fakeTemplates) Resolve(_ context.Context, p sandbox.Principal, name string) (template.Template, template.Build, error) {
	if err := noTemplate(p, name); err != nil {
		return template.Template{}, template.Build{}, err
	}
	if name != "app:v2" {
		return template.Template{}, template.Build{}, sandbox.Errorf(sandbox.NotFound, "template app has no ready build with that tag")
	}
	return oneTemplate(), someBuilds()[1], nil
}

func (f *fakeTemplates) Owner(_ context.Context, id string) (sandbox.Principal, error) {
	if id == "of-revoked" {
		return "revoked", nil
	}
	if id == "mallorys" {
		return "mallory", nil
	}
	return "alice", noTemplate("alice", id)
}

func (f *fakeTemplates) Start(_ context.Context, _ sandbox.Principal, id string, s template.Setup) error {
	f.started = id + " " + s.Start
	return f.start
}

func (f *fakeTemplates) Used(_ context.Context, id string) error {
	f.used = id
	return nil
}

func newTemplatesTest(t *testing.T) (*fakeTemplates, *fakeEngine, *Server, *httptest.Server) {
	t.Helper()
	f, e := &fakeTemplates{}, &fakeEngine{boxes: map[string]*fakeBox{}, answer: answer(200, "<b>")}
	s := New(Options{
		Engine: e, Auth: fakeAuth{}, Access: fakeAccess{}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
		Templates: templates.New(templates.Options{Service: f, Access: fakeAccess{}, AgentVersion: AgentVersion, Now: func() time.Time { return now }}),
	})
	srv := httptest.NewServer(s.Authenticate(s))
	t.Cleanup(srv.Close)
	return f, e, s, srv
}

// TestTemplateRequests is every request of the SDKs about templates, with its answer.
func TestTemplateRequests(t *testing.T) {
	f, _, _, srv := newTemplatesTest(t)
	const at = "2026-11-20T12:00:00Z"
	legacy := `"public":false,"names":["app"],"aliases":["app"],"tags":["v4"],"cpuCount":2,"memoryMB":512,"diskSizeMB":0,"createdAt":"` + at + `","updatedAt":"` + at +
		`","createdBy":null,"lastSpawnedAt":null,"spawnCount":2,"buildCount":3,"envdVersion":"0.6.4"`
	for _, c := range []struct {
		request, body, key string
		status             int
		answer             string
	}{
		{"POST /v3/templates", `{"name":"app:v4","tags":["x"],"cpuCount":2,"memoryMB":512}`, "alice", 202, `{"templateID":"tid","buildID":"b4",` + legacy + `}`},
		{"POST /v2/templates", `{"alias":"app","teamID":"t","cpuCount":2,"memoryMB":512}`, "alice", 202, `{"templateID":"tid","buildID":"b4",` + legacy + `}`},
		{"POST /v3/templates", `{"name":"app","dockerfile":"FROM x"}`, "alice", 400, ""},
		{"POST /v3/templates", ``, "alice", 400, ""},
		{"POST /v3/templates", `{"name":"app"}`, "Runner", 403, ""},
		{"POST /v3/templates", `{"name":"app"}`, "", 401, ""},
		{"POST /templates", `{"dockerfile":"FROM x"}`, "alice", 501, ""},
		{"POST /templates/tid", `{"dockerfile":"FROM x"}`, "alice", 501, ""},
		{"POST /templates/tid/builds/b0", ``, "alice", 501, ""},

		{"POST /v2/templates/tid/builds/b0", `{"fromImage":"base:1","startCmd":"s","readyCmd":"r","force":true,"steps":[
			{"type":"COPY","args":["a","b","",""],"force":false,"forceUpload":true,"resolveSymlinks":false,"gzip":true,"filesHash":"` + filesHash + `"},{"type":"RUN","args":["x"],"force":true}]}`, "alice", 202, ""},
		{"POST /v2/templates/tid/builds/b0", `{"fromImage":"x","fromImageRegistry":{"type":"registry","username":"u","password":"secret"}}`, "alice", 501, ""},
		{"POST /v2/templates/tid/builds/b0", `{"fromImage":"x"}`, "mallory", 404, ""},

		{"GET /templates/tid/builds/b3/status?logsOffset=149&level=info", "", "alice", 200, `{"templateID":"tid","buildID":"b3","status":"error","logs":["line 149"],
			"logEntries":[{"timestamp":"2026-11-20T12:02:29Z","level":"info","message":"line 149","step":"1"}],"reason":{"message":"it broke","step":"2","logEntries":[]}}`},
		{"GET /templates/tid/builds/b2/status?logsOffset=500", "", "alice", 200, `{"templateID":"tid","buildID":"b2","status":"ready","logs":[],"logEntries":[]}`},
		{"GET /templates/tid/builds/b1/status?limit=0", "", "alice", 200, `{"templateID":"tid","buildID":"b1","status":"building","logs":[],"logEntries":[]}`},
		{"GET /templates/tid/builds/b0/status?level=error", "", "alice", 200, `{"templateID":"tid","buildID":"b0","status":"waiting","logs":[],"logEntries":[]}`},
		{"GET /templates/tid/builds/b9/status", "", "alice", 404, ""},
		{"GET /templates/tid/builds/b2/status", "", "mallory", 404, ""},
		{"GET /templates/tid/builds/b2/status?limit=101", "", "alice", 400, ""},
		{"GET /templates/tid/builds/b2/status?logsOffset=x", "", "alice", 400, ""},
		{"GET /templates/tid/builds/b2/logs?direction=backward&limit=1", "", "alice", 200, `{"logs":[{"timestamp":"2026-11-20T12:02:29Z","level":"info","message":"line 149","step":"1"}]}`},
		{"GET /templates/tid/builds/b2/logs?cursor=1795176002000&limit=1", "", "alice", 200, `{"logs":[{"timestamp":"2026-11-20T12:00:02Z","level":"info","message":"line 2","step":"1"}]}`},
		{"GET /templates/tid/builds/b2/logs?direction=up", "", "alice", 400, ""},
		{"GET /templates/tid/builds/b2/logs?cursor=-1", "", "alice", 400, ""},

		{"POST /templates/tags", `{"target":"app:v2","tags":["a","b"]}`, "alice", 201, `{"buildID":"b2","tags":["a","b"]}`},
		{"POST /templates/tags", `{"target":"app:v2","tags":["a"]}`, "mallory", 404, ""},
		{"DELETE /templates/tags", `{"name":"app","tags":["a"]}`, "alice", 204, ""},
		{"DELETE /templates/tags", `{"name":"none","tags":["a"]}`, "alice", 404, ""},
		{"GET /templates/tid/tags", "", "alice", 200, `[{"tag":"v2","buildID":"b2","createdAt":"` + at + `"}]`},
		{"GET /templates/none/tags", "", "alice", 404, ""},
		{"GET /templates/tid/other", "", "alice", 404, ""},

		{"GET /templates/aliases/app:v2", "", "alice", 200, `{"templateID":"tid","public":false}`},
		{"GET /templates/aliases/app", "", "alice", 404, ""},
		{"GET /templates/aliases/app:v2", "", "mallory", 404, ""},
		{"GET /templates/aliases/base", "", "alice", 200, `{"templateID":"base","public":false}`},

		{"GET /templates/tid", "", "alice", 200, `{"templateID":"tid","public":false,"aliases":["app"],"names":["app"],"createdAt":"` + at + `","updatedAt":"` + at + `","lastSpawnedAt":"` + at + `","spawnCount":2,"builds":[` +
			`{"buildID":"b3","status":"error","createdAt":"` + at + `","updatedAt":"` + at + `","finishedAt":"` + at + `","cpuCount":2,"memoryMB":1024,"envdVersion":"0.6.4"},` +
			`{"buildID":"b2","status":"ready","createdAt":"` + at + `","updatedAt":"` + at + `","finishedAt":"` + at + `","cpuCount":2,"memoryMB":1024,"envdVersion":"0.6.4"},` +
			`{"buildID":"b1","status":"building","createdAt":"` + at + `","updatedAt":"` + at + `","cpuCount":2,"memoryMB":1024,"envdVersion":"0.6.4"},` +
			`{"buildID":"b0","status":"waiting","createdAt":"` + at + `","updatedAt":"` + at + `","cpuCount":2,"memoryMB":1024,"envdVersion":"0.6.4"}]}`},
		{"GET /templates/tid", "", "mallory", 404, ""},
		{"GET /templates", "", "mallory", 200, `[]`},
		{"GET /v2/templates?nextToken=tid&limit=1", "", "alice", 200, `[{"templateID":"tid2","buildID":"","public":false,"names":["app"],"aliases":["app"],"tags":[],"cpuCount":0,"memoryMB":0,"diskSizeMB":0,"createdAt":"` + at +
			`","updatedAt":"` + at + `","createdBy":null,"lastSpawnedAt":"` + at + `","spawnCount":2,"buildCount":3,"envdVersion":"0.6.4","buildStatus":"waiting"}]`},
		{"GET /v2/templates?nextToken=other", "", "alice", 400, ""},
		{"PATCH /v2/templates/tid", `{"public":false}`, "alice", 200, `{"names":["app"]}`},
		{"PATCH /templates/tid", `{"public":true}`, "alice", 501, ""},
		{"PATCH /templates/none", `{"public":true}`, "alice", 404, ""},
		{"DELETE /templates/app", "", "mallory", 404, ""},
		{"DELETE /templates/app", "", "alice", 204, ""},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		status, _, body := do(t, method, srv.URL+path, c.body, "X-API-KEY", c.key)
		if status != c.status || strings.Contains(body, "secret") {
			t.Errorf("%s of %q: status %d, want %d: %s", c.request, c.key, status, c.status, body)
		}
		if c.answer == "" {
			continue
		}
		var got, want any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Errorf("%s: %v", c.request, err)
		}
		if err := json.Unmarshal([]byte(c.answer), &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", c.request, d)
		}
	}
	if f.deleted != "app" || f.tagged != "-none[a]" {
		t.Errorf("%+v", f)
	}
	_, head, body := do(t, "GET", srv.URL+"/v2/templates?limit=1", "", "X-API-KEY", "alice")
	if head.Get("X-Next-Token") != "tid" || !strings.Contains(body, `"buildStatus":"error"`) || !strings.Contains(body, `"buildID":"b2"`) {
		t.Errorf("a page: %v, %s", head, body)
	}
}

// TestTemplatePlan checks what becomes of the SDK's requests.
func TestTemplatePlan(t *testing.T) {
	f, _, _, srv := newTemplatesTest(t)
	do(t, "POST", srv.URL+"/v3/templates", `{"name":"app:v4","tags":["x"],"cpuCount":2,"memoryMB":512}`, "X-API-KEY", "alice")
	if d := cmp.Diff(template.Order{Name: "app:v4", Tags: []string{"x"}, CPUs: 2, MemoryMB: 512}, f.ordered); d != "" {
		t.Errorf("order: -want +got\n%s", d)
	}
	do(t, "POST", srv.URL+"/v2/templates/tid/builds/b0", `{"fromTemplate":"app","startCmd":"s","readyCmd":"r","force":true,"steps":[
		{"type":"COPY","args":["a","b"],"filesHash":"h"},{"type":"RUN","args":["x","root"],"force":true}]}`, "X-API-KEY", "alice")
	want := template.Plan{FromTemplate: "app", Start: "s", Ready: "r", Steps: []template.Step{
		{Type: "COPY", Args: []string{"a", "b"}, FilesHash: "h"}, {Type: "RUN", Args: []string{"x", "root"}},
	}}
	if d := cmp.Diff(want, f.plan); d != "" || f.began != "tid b0" {
		t.Errorf("%s: plan: -want +got\n%s", f.began, d)
	}

	// A short plan with many values is refused before it takes memory.
	f.began = ""
	for name, many := range map[string]string{
		"steps": `"steps":[` + strings.Repeat("{},", 60_000) + `{}]`, "arguments": `"steps":[{"args":[` + strings.Repeat(`"",`, 60_000) + `""]}]`,
	} {
		status, _, body := do(t, "POST", srv.URL+"/v2/templates/tid/builds/b0", `{"fromImage":"x",`+many+`}`, "X-API-KEY", "alice")
		if status != 400 || !strings.Contains(body, "JSON values") || f.began != "" {
			t.Errorf("many %s: status %d, %s", name, status, body)
		}
	}
}

// TestTemplateUpload sends archives to signed addresses, as an SDK does: without a
// key.
func TestTemplateUpload(t *testing.T) {
	f, _, s, srv := newTemplatesTest(t)
	type link struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}
	path := "/templates/tid/files/" + filesHash
	status, _, body := do(t, "GET", srv.URL+path, "", "X-API-KEY", "alice")
	first := decodeJSON[link](t, body)
	if status != 201 || first.Present || !strings.HasPrefix(first.URL, srv.URL+path+"?") {
		t.Fatalf("status %d, %s", status, body)
	}
	if status, _, body := do(t, "PUT", first.URL, "archive"); status != 200 || f.uploaded != "alice "+filesHash+" 7: archive" {
		t.Errorf("status %d, %s, %q", status, body, f.uploaded)
	}
	if _, _, body := do(t, "GET", srv.URL+path, "", "X-API-KEY", "alice"); !decodeJSON[link](t, body).Present {
		t.Errorf("after the upload: %s", body)
	}
	if status, _, _ := do(t, "GET", srv.URL+path, "", "X-API-KEY", "mallory"); status != 404 {
		t.Errorf("another's template: status %d", status)
	}

	u, err := url.Parse(first.URL)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(path string, pairs ...string) string {
		c, q := *u, u.Query()
		for i := 0; i < len(pairs); i += 2 {
			q.Set(pairs[i], pairs[i+1])
		}
		if c.RawQuery = q.Encode(); path != "" {
			c.Path = path
		}
		return c.String()
	}
	signed := func(p, id, ends string) string {
		return changed("/templates/"+id+"/files/"+filesHash, "expires", ends, "signature", fakeAccess{}.Token(fmt.Sprintf("template upload %q %q %q %s", p, id, filesHash, ends)))
	}
	f.uploaded = ""
	for name, address := range map[string]string{
		"no signature": srv.URL + path, "another hash": changed(strings.Replace(path, "aa", "bb", 1)), "a later end": changed("", "expires", "99999999999"),
		"another signature": changed("", "signature", "x"), "expired": signed("alice", "tid", fmt.Sprint(now.Unix()-1)),
		"a revoked principal": signed("revoked", "of-revoked", fmt.Sprint(now.Unix()+1)),
		"another's template":  signed("mallory", "tid", fmt.Sprint(now.Unix()+1)), "no template": signed("", "none", fmt.Sprint(now.Unix()+1)),
	} {
		if status, _, body := do(t, "PUT", address, "archive"); status != 401 || f.uploaded != "" {
			t.Errorf("%s: status %d, %s, %q", name, status, body, f.uploaded)
		}
	}
	// A name that is another's identifier gives no address of that template.
	f.taken = true
	_, _, body = do(t, "GET", srv.URL+path, "", "X-API-KEY", "mallory")
	if link := decodeJSON[link](t, body).URL; !strings.Contains(link, "/templates/mallorys/") {
		t.Errorf("the address for another's identifier as a name: %s", body)
	}
	// The signature is for an upload, and for nothing else.
	if status, _, _ := do(t, "GET", first.URL, ""); status != 401 {
		t.Errorf("another method: status %d", status)
	}
	f.upload = sandbox.Errorf(sandbox.Exhausted, "%w: it has more than 5 bytes", template.ErrTooLong)
	if status, _, body := do(t, "PUT", first.URL, "archive"); status != 413 || !strings.Contains(body, "more than 5 bytes") {
		t.Errorf("too long: status %d, %s", status, body)
	}

	// A client that announces too much is answered before it sends it.
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 10000000000\r\n\r\nstart", u.RequestURI(), u.Host)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "413") {
		t.Errorf("10 GB: %q, %v", line, err)
	}

	// Uploads may be long and slow, as those of files in sandboxes.
	upload := httptest.NewRequest(http.MethodPut, u.RequestURI(), nil)
	if !s.Streams(upload) || !s.Lasts(upload) || s.Streams(httptest.NewRequest(http.MethodPost, "/v3/templates", nil)) {
		t.Error("an upload is not streamed, or another request is")
	}
}

// TestUploadAddress is the address as clients in all places reach the server.
func TestUploadAddress(t *testing.T) {
	_, _, s, _ := newTemplatesTest(t)
	behind := httptest.NewServer(http.StripPrefix("/e2b", s.Authenticate(s)))
	defer behind.Close()
	path := "/templates/tid/files/" + filesHash
	for name, c := range map[string]struct {
		headers []string
		want    string
	}{
		"below a path": {nil, behind.URL + "/e2b" + path + "?"},
		"a proxy":      {[]string{"Host", "e2b.example.com", "X-Forwarded-Proto", "https"}, "https://e2b.example.com/e2b" + path + "?"},
	} {
		_, _, body := do(t, "GET", behind.URL+"/e2b"+path, "", append(c.headers, "X-API-KEY", "alice")...)
		if got := decodeJSON[struct{ URL string }](t, body).URL; !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestCreateFromTemplate makes sandboxes of a template that was built here.
func TestCreateFromTemplate(t *testing.T) {
	f, e, _, srv := newTemplatesTest(t)
	status, _, body := do(t, "POST", srv.URL+"/sandboxes", `{"templateID":"app:v2"}`, "X-API-KEY", "alice")
	got := decodeJSON[sandboxAnswer](t, body)
	if status != 201 || got.TemplateID != "tid" || got.Alias != "app" {
		t.Fatalf("status %d, %s", status, body)
	}
	if r := e.created; r.Image != "template.glovebox/app:b2" || r.Limits.CPUs != 2 || r.Limits.MemoryBytes != 1<<30 {
		t.Errorf("%+v", r)
	}
	id := sandbox.CanonicalID(got.SandboxID)
	if f.started != id+" serve" || f.used != "tid" {
		t.Errorf("started %q, used %q", f.started, f.used)
	}
	for query, want := range map[string]int{"tid": 1, "app": 1, "other": 0} {
		_, _, body := do(t, "GET", srv.URL+"/v2/sandboxes?template="+query, "", "X-API-KEY", "alice")
		if list := decodeJSON[[]entry](t, body); len(list) != want {
			t.Errorf("%d sandboxes of %s", len(list), query)
		}
	}

	// Programs have its directory and its user, unless they name another.
	for name, c := range map[string]struct {
		path    string
		headers []string
		want    string
	}{
		"default":       {"/process.Process/Start", nil, "root"},
		"another":       {"/process.Process/Start", []string{"Authorization", "Basic dXNlcjo="}, "user"},
		"of files":      {"/files?path=x", nil, "root"},
		"another there": {"/files?path=x&username=user", nil, ""},
	} {
		do(t, "POST", srv.URL+c.path, "", append(c.headers, "E2b-Sandbox-Id", id, "X-Access-Token", "access-"+id)...)
		if user, _, _ := e.forwarded.BasicAuth(); user != c.want || e.defaults.Dir != "/srv" {
			t.Errorf("%s: user %q in %s, want %q in /srv", name, user, e.defaults.Dir, c.want)
		}
	}

	// A sandbox whose commands fail is stopped.
	f.start = sandbox.Errorf(sandbox.Unavailable, "the start command failed: no port")
	status, _, body = do(t, "POST", srv.URL+"/sandboxes", `{"templateID":"app:v2"}`, "X-API-KEY", "alice")
	failed, _, _ := strings.Cut(f.started, " ")
	if status != 503 || !strings.Contains(body, "the start command failed: no port") || e.boxes[failed].State != sandbox.Stopped {
		t.Errorf("status %d, %s; the sandbox is %s", status, body, e.boxes[failed].State)
	}
	if status, _, body := do(t, "POST", srv.URL+"/sandboxes", `{"templateID":"app"}`, "X-API-KEY", "alice"); status != 404 || !strings.Contains(body, "no ready build") {
		t.Errorf("no ready build: status %d, %s", status, body)
	}
	// For another principal, the name is that of an image.
	do(t, "POST", srv.URL+"/sandboxes", `{"templateID":"app:v2"}`, "X-API-KEY", "mallory")
	if e.created.Image != "app:v2" {
		t.Errorf("another principal got %s", e.created.Image)
	}
}
