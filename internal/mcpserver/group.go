package mcpserver

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
)

// A Group serves several servers of one engine over HTTP, one for each profile.
// Each server is at /mcp/NAME, and the first is also at /mcp and /sse. The
// servers share nothing but the engine, so their tools may have equal names.
type Group struct {
	servers []*Server
}

// NewGroup returns a group of at least one server. The servers' profiles must
// differ.
func NewGroup(servers ...*Server) *Group { return &Group{servers} }

// Handler returns one handler for all servers; see [Server.Handler].
func (g *Group) Handler() http.Handler {
	byName := map[string]http.Handler{}
	for _, s := range g.servers {
		byName[s.profileName()] = s.Handler()
	}
	first := g.servers[0].Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := first
		if rest, ok := strings.CutPrefix(r.URL.Path, transport.StreamablePath+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			if named := byName[name]; named != nil {
				h = named // without it, the first server answers 404
			}
		}
		h.ServeHTTP(w, r)
	})
}

// Busy reports whether any server has an open session.
func (g *Group) Busy() bool { return slices.ContainsFunc(g.servers, (*Server).Busy) }

// End calls [Server.End] of each server.
func (g *Group) End(gone func(auth.Identity) bool) {
	for _, s := range g.servers {
		s.End(gone)
	}
}

// Shutdown shuts down all servers at the same time, and joins their errors; see
// [Server.Shutdown].
func (g *Group) Shutdown(ctx context.Context) error {
	errs := make([]error, len(g.servers))
	var wg sync.WaitGroup
	for i, s := range g.servers {
		wg.Go(func() { errs[i] = s.Shutdown(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
