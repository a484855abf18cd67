package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audit"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/dashboard"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// dashboard returns the pages for people of a server at the URL base. Commands of this
// machine can then make links to them.
func (s *System) dashboard(base string) *dashboard.Server {
	c := s.opts.Config.Server
	var issuer string
	if c.OIDC.Client.ID != "" {
		issuer = c.OIDC.Issuer
	}
	d := dashboard.New(dashboard.Options{
		Engine: s.Engine, Issuer: issuer, Auth: s.auth, Log: s.log, Shard: c.ShardID(), Version: s.opts.Version, Now: s.opts.now,
		// People type tokens only where no page of a sandbox can run code.
		TokenForm: c.SignIn.Enabled || s.ports.Domain() != "",
		Languages: languages(), Accounts: members{s.store}, Audit: s.auditLog(),
		Ports: s.ports, ShellTime: s.opts.Config.Run.Longest(), MaxLimits: s.opts.Config.Sandbox.Maximum.Limits(), Doctor: s.examine,
		NoSnapshots: driver.NoMemory(s.driver), NoRollback: driver.CanRollback(s.driver),
		Secure: strings.HasPrefix(base, "https://"),
	})
	if s.control != nil {
		s.control.OfferLinks(func(ctx context.Context, token string) (control.Link, error) {
			id, err := s.linkOwner(ctx, token)
			if err != nil {
				return control.Link{}, err
			}
			path, expires, err := d.Link(id)
			return control.Link{URL: base + path, Principal: id.Principal, Expires: expires}, err
		})
	}
	return d
}

// members answers the dashboard's questions about accounts.
type members struct{ *store.Store }

// Members returns the principals of each group.
func (m members) Members(ctx context.Context) (map[string][]sandbox.Principal, error) {
	list, err := m.Groups(ctx)
	if err != nil {
		return nil, err
	}
	of := make(map[string][]sandbox.Principal, len(list))
	for _, g := range list {
		of[g.Name] = g.Members
	}
	return of, nil
}

// auditLog returns the audit log for the dashboard, or nil if it is not enabled.
func (s *System) auditLog() dashboard.AuditLog {
	if !s.opts.Config.Audit.Enabled {
		return nil
	}
	return auditReader{AuditDir(s.opts.Config)}
}

// An auditReader reads the audit log in a directory.
type auditReader struct{ dir string }

func (a auditReader) Last(_ context.Context, n int, match func(audit.Record) bool) ([]audit.Record, error) {
	return audit.Last(a.dir, n, match)
}

func (a auditReader) Verify(context.Context) (audit.Report, error) { return audit.Verify(a.dir) }

// examine checks this machine as glovebox doctor does.
func (s *System) examine(ctx context.Context) []dashboard.Finding {
	var list []dashboard.Finding
	o := Options{Config: s.opts.Config, Log: s.log, Version: s.opts.Version, TestDrivers: s.opts.TestDrivers, TestAuto: s.opts.TestAuto}
	for _, c := range Doctor(ctx, o) {
		list = append(list, dashboard.Finding{Name: c.Name, Status: string(c.Status), Detail: c.Detail, Fix: c.Fix})
	}
	return list
}

// languages returns the names of the languages of this program.
func languages() []string {
	var names []string
	for _, l := range language.All() {
		names = append(names, l.Name)
	}
	return names
}

// linkOwner returns the identity of the token of that name. Without a name, it is the
// only token, the first start's, or the static token of the environment.
func (s *System) linkOwner(ctx context.Context, name string) (auth.Identity, error) {
	all, err := s.auth.List(ctx)
	if err != nil {
		return auth.Identity{}, err
	}
	valid := slices.DeleteFunc(all, func(t sandbox.Token) bool { return !t.InForce(time.Now()) })
	if name == "" && s.opts.Config.Server.Token != "" {
		return auth.Identity{Principal: auth.StaticPrincipal, Scopes: auth.Scopes()}, nil
	}
	i := slices.IndexFunc(valid, func(t sandbox.Token) bool {
		return name != "" && t.Name == name || name == "" && (len(valid) == 1 || t.Name == auth.FirstName)
	})
	switch {
	case i >= 0:
		scopes, err := auth.ParseScopes(valid[i].Scopes)
		return auth.Identity{Principal: valid[i].Principal, Scopes: scopes, Token: valid[i].ID, Expires: valid[i].Expires, Rotation: valid[i].Rotations}, err
	case name != "":
		return auth.Identity{}, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is no token %q", name), "list tokens with glovebox token list")
	case len(valid) == 0:
		return auth.Identity{}, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "the server has no token"), "make one with glovebox token create NAME")
	}
	return auth.Identity{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "token: the server has %d, and none is called %s", len(valid), auth.FirstName),
		"name the token whose sandboxes you want to see: glovebox open --token NAME")
}

// A DashboardLink signs one browser in to the dashboard, once.
type DashboardLink = control.Link

// OpenDashboard asks the server of c's state directory for a link to its dashboard, for
// the principal of the token of that name, or of the usual one. The error wraps
// [sandbox.Unavailable] if no server runs, or if it has no dashboard.
func OpenDashboard(ctx context.Context, c config.Config, token string) (link DashboardLink, err error) {
	t, err := OpenTokens(ctx, c)
	if err != nil {
		return link, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	servers, err := t.store.Servers(ctx)
	if err != nil {
		return link, err
	}
	err = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "no server runs on this state directory"), "start one with glovebox serve")
	for _, id := range servers {
		if link, err = (control.Client{Path: t.store.OwnerSocket(id)}).Link(ctx, token); !errors.Is(err, sandbox.Unavailable) {
			return link, err
		}
	}
	return link, err
}
