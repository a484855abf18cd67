package templates

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/template"
)

// A Page is one answer of a list; Next is the token of the next page, or "".
type Page struct {
	Items any
	Next  string
}

// maxPage is the largest and the default number of items in one answer.
const maxPage = 100

// An entry is a template in a list.
type entry struct {
	requested
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	BuildStatus   string     `json:"buildStatus"`
}

// list answers with the templates of a principal. Version 2 has pages, whose token
// is the last template of the page before.
func (a *API) list(r *http.Request, p sandbox.Principal) (int, any, error) {
	limit, err := number(r, "limit", maxPage, maxPage)
	if err != nil {
		return 0, nil, err
	}
	all, err := a.opts.Service.List(r.Context(), p)
	if err != nil {
		return 0, nil, err
	}
	from := r.URL.Query().Get("nextToken")
	page := Page{}
	items := []entry{}
	for i, t := range all {
		if from != "" {
			if t.ID == from {
				from = ""
			}
			continue
		}
		if len(items) >= limit {
			page.Next = all[i-1].ID
			break
		}
		e, err := a.entry(r, p, t)
		if err != nil {
			return 0, nil, err
		}
		items = append(items, e)
	}
	if from != "" {
		return 0, nil, sandbox.Errorf(sandbox.Invalid, "nextToken: %s is none of this server", short(from))
	}
	page.Items = items
	return http.StatusOK, page, nil
}

func (a *API) entry(r *http.Request, p sandbox.Principal, t template.Template) (entry, error) {
	e := entry{requested: requested{
		TemplateID: t.ID, Names: []string{t.Name}, Aliases: []string{t.Name}, Tags: []string{}, CreatedAt: t.Created, UpdatedAt: t.Updated,
		SpawnCount: t.Uses, BuildCount: t.Builds, EnvdVersion: a.opts.AgentVersion,
	}, LastSpawnedAt: used(t), BuildStatus: "waiting"}
	_, builds, err := a.opts.Service.Get(r.Context(), p, t.ID)
	if err != nil {
		return entry{}, err
	}
	if len(builds) == 0 {
		return e, nil
	}
	e.BuildStatus = stateOf(builds[0]) // the newest
	shown := builds[0]
	if i := slices.IndexFunc(builds, func(b template.Build) bool { return b.Status == template.Ready }); i >= 0 {
		shown = builds[i]
	}
	e.BuildID, e.Tags = shown.ID, append([]string{}, shown.Tags...)
	e.CPUCount, e.MemoryMB, err = a.sizes(shown)
	return e, err
}

// sizes returns the processors and the memory of a build's sandboxes.
func (a *API) sizes(b template.Build) (cpus int, memoryMB int64, err error) {
	setup, err := template.SetupOf(b)
	if err != nil {
		return 0, 0, err
	}
	l := a.opts.Service.Limits(setup)
	return max(1, int(l.CPUs)), l.MemoryBytes >> 20, nil
}

func used(t template.Template) *time.Time {
	if t.Used.IsZero() {
		return nil
	}
	return &t.Used
}

// get answers with a template and its builds.
func (a *API) get(r *http.Request, p sandbox.Principal) (int, any, error) {
	t, builds, err := a.opts.Service.Get(r.Context(), p, r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	limit, err := number(r, "limit", maxPage, maxPage)
	if err != nil {
		return 0, nil, err
	}
	type build struct {
		BuildID     string     `json:"buildID"`
		Status      string     `json:"status"`
		CreatedAt   time.Time  `json:"createdAt"`
		UpdatedAt   time.Time  `json:"updatedAt"`
		FinishedAt  *time.Time `json:"finishedAt,omitempty"`
		CPUCount    int        `json:"cpuCount"`
		MemoryMB    int64      `json:"memoryMB"`
		EnvdVersion string     `json:"envdVersion"`
	}
	list := []build{}
	for _, b := range builds[:min(limit, len(builds))] {
		one := build{BuildID: b.ID, Status: stateOf(b), CreatedAt: b.Created, UpdatedAt: b.Updated, EnvdVersion: a.opts.AgentVersion}
		if !b.Finished.IsZero() {
			one.FinishedAt = &b.Finished
		}
		if one.CPUCount, one.MemoryMB, err = a.sizes(b); err != nil {
			return 0, nil, err
		}
		list = append(list, one)
	}
	return http.StatusOK, struct {
		TemplateID    string     `json:"templateID"`
		Public        bool       `json:"public"`
		Aliases       []string   `json:"aliases"`
		Names         []string   `json:"names"`
		CreatedAt     time.Time  `json:"createdAt"`
		UpdatedAt     time.Time  `json:"updatedAt"`
		LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
		SpawnCount    int64      `json:"spawnCount"`
		Builds        []build    `json:"builds"`
	}{t.ID, false, []string{t.Name}, []string{t.Name}, t.Created, t.Updated, used(t), t.Uses, list}, nil
}

func (a *API) remove(r *http.Request, p sandbox.Principal) (int, any, error) {
	return http.StatusNoContent, nil, a.opts.Service.Delete(r.Context(), p, r.PathValue("id"))
}

func (a *API) update(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		Public *bool `json:"public"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	t, _, err := a.opts.Service.Get(r.Context(), p, r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	if in.Public != nil && *in.Public {
		return 0, nil, sandbox.Errorf(sandbox.Unsupported, "public: a template belongs to one principal")
	}
	return http.StatusOK, struct {
		Names []string `json:"names"`
	}{[]string{t.Name}}, nil
}

// A Ready is a template of which sandboxes can be made.
type Ready struct {
	ID, Name, Image string
	Limits          sandbox.Limits // zeros are the defaults
	template.Setup
}

// Find returns the template that a name means for a principal; ok is false if there
// is none. If there is no ready build of it, the error is of kind NotFound.
func (a *API) Find(ctx context.Context, p sandbox.Principal, name string) (_ Ready, ok bool, err error) {
	t, b, err := a.opts.Service.Resolve(ctx, p, name)
	if errors.Is(err, sandbox.NotFound) {
		if _, _, getErr := a.opts.Service.Get(ctx, p, name); errors.Is(getErr, sandbox.NotFound) {
			return Ready{}, false, nil
		}
	}
	if err != nil {
		return Ready{}, false, err
	}
	if b.Image == "" {
		return Ready{}, false, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "the image of template %s was removed from the server", t.Name), "build the template again")
	}
	setup, err := template.SetupOf(b)
	return Ready{t.ID, t.Name, b.Image, a.opts.Service.Limits(setup), setup}, err == nil, err
}

// Start starts the commands of a template in a new sandbox, and counts it. If that
// fails, the caller stops the sandbox.
func (a *API) Start(ctx context.Context, p sandbox.Principal, sandboxID string, t Ready) error {
	if err := a.opts.Service.Start(ctx, p, sandboxID, t.Setup); err != nil {
		return err
	}
	return a.opts.Service.Used(ctx, t.ID)
}
