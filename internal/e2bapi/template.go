package e2bapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// stopTime bounds the stop of a sandbox whose template did not start.
const stopTime = 30 * time.Second

// useTemplate completes a request that names a template of the principal. The
// function that it returns starts the template's commands in the new sandbox, and
// stops the sandbox if they fail.
func (s *Server) useTemplate(ctx context.Context, p sandbox.Principal, req *sandbox.CreateRequest) (start func(ctx context.Context, id string) error, err error) {
	nothing := func(context.Context, string) error { return nil }
	if s.opts.Templates == nil || req.Image == "" {
		return nothing, nil
	}
	t, ok, err := s.opts.Templates.Find(ctx, p, req.Image)
	if err != nil || !ok {
		return nothing, err
	}
	req.Image = t.Image
	req.Limits.CPUs, req.Limits.MemoryBytes = t.Limits.CPUs, t.Limits.MemoryBytes
	req.Labels[labelTemplate], req.Labels[labelAlias] = t.ID, t.Name
	req.Labels[labelUser], req.Labels[labelWorkDir] = t.User, t.WorkDir
	return func(ctx context.Context, id string) error {
		err := s.opts.Templates.Start(ctx, p, id, t)
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
			defer cancel()
			if stopErr := s.opts.Engine.Stop(ctx, p, id); !errors.Is(stopErr, sandbox.NotFound) {
				err = errors.Join(err, stopErr)
			}
		}
		return err
	}, nil
}

// aliasOf returns the name of a sandbox's template.
func aliasOf(sb sandbox.Sandbox) string { return cmp.Or(sb.Labels[labelAlias], templateOf(sb)) }

// programDefaults returns what programs of a sandbox get that name nothing else.
func programDefaults(sb sandbox.Sandbox) sandbox.ProgramDefaults {
	return sandbox.ProgramDefaults{Dir: cmp.Or(sb.Labels[labelWorkDir], home), Env: environ(sb)}
}

// asTemplate makes a request that names no user act as the template's.
func asTemplate(req *http.Request, sb sandbox.Sandbox) *http.Request {
	user := sb.Labels[labelUser]
	if user == "" || user == defaultUser || req.Header.Get("Authorization") != "" ||
		req.URL.Path == guestapi.PathFiles && req.URL.Query().Get("username") != "" {
		return req
	}
	req.SetBasicAuth(user, "")
	return req
}

// defaultUser is the user of programs that name none.
const defaultUser = "user"

// alias reports whether a template exists: a sandbox of it starts at once. It is a
// default of the SDKs, the caller's, or an image that need not be pulled.
func (s *Server) alias(r *http.Request, p sandbox.Principal) (int, any, error) {
	name := r.PathValue("alias")
	id := name
	has := slices.Contains(defaultTemplates, name)
	if !has && s.opts.Templates != nil {
		t, ok, err := s.opts.Templates.Find(r.Context(), p, name)
		if err != nil {
			return 0, nil, err
		}
		if ok {
			id, has = t.ID, true
		}
	}
	if !has {
		var err error
		if has, err = s.opts.Engine.HasImage(r.Context(), p, name); err != nil {
			return 0, nil, err
		}
	}
	if !has {
		return 0, nil, sandbox.Errorf(sandbox.NotFound, "there is no template %s, and the server has no image of that name", short(name))
	}
	return http.StatusOK, struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}{id, false}, nil
}
