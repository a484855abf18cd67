package app

import (
	"context"
	"path/filepath"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audited"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/e2bapi"
	"github.com/glovebox-dev/glovebox/internal/e2bapi/templates"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/template"
)

// templates returns the builder of templates, or nil if the driver makes no images
// from sandboxes. A container engine builds images too, but outside of a sandbox, so
// clients cannot build there.
func (s *System) templates() (*template.Service, error) {
	images, ok := driver.Ability[imageMaker](s.driver)
	if !ok {
		return nil, nil //nolint:nilnil // there is none
	}
	c := s.opts.Config
	return template.New(template.Options{
		Store: s.store, Sandboxes: s.Engine, Images: templateImages{images, s.Engine}, Driver: s.DriverName(),
		Owner: s.Engine.OwnerID(), Dir: filepath.Join(c.StateDir, "templates"), Log: s.log, Now: time.Now,
		Maximum: c.Sandbox.Maximum.Limits(), Network: s.Engine.AllowedNetwork(sandbox.NetworkInternet), ProgramTime: c.Run.Unattended(),
		ImageSpace: int64(c.Templates.ImageSpace), ContextSize: int64(c.Templates.ContextSize), Builds: c.Templates.Builds,
		BuildTime: time.Duration(c.Templates.BuildTime), ReadyTime: time.Duration(c.Templates.ReadyTime),
	})
}

// templatesAPI serves a builder of templates, which may be nil.
func (s *System) templatesAPI(builder *template.Service, access *auth.Access) *templates.API {
	if builder == nil {
		return nil
	}
	return templates.New(templates.Options{
		Service: builder, Access: access, Domain: s.opts.Config.Server.E2BDomain, AgentVersion: e2bapi.AgentVersion, Now: time.Now,
	})
}

// templateImages are the images for builds of principals.
type templateImages struct {
	imageMaker
	engine *audited.Engine
}

func (i templateImages) FetchImage(ctx context.Context, p sandbox.Principal, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	return i.engine.FetchImage(ctx, p, ref, progress)
}

func (i templateImages) ForgetImages(ctx context.Context) error { return i.engine.ForgetImages(ctx) }
