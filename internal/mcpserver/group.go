package mcpserver

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// A Group is several servers of one engine side by side on HTTP, one for each
// profile: all of them at /mcp/NAME, and the first at /mcp and /sse as well.
// They share nothing but the engine, so their tools may have the same names.
type Group struct {
	servers []*Server
}

// NewGroup returns a group of servers whose profiles differ; there is at least
// one.
func NewGroup(servers ...*Server) *Group { return &Group{servers} }

// Handler is that of [Server] for the whole group.
func (g *Group) Handler() http.Handler {
	byName := map[string]http.Handler{}
	for _, s := range g.servers {
		byName[s.profileName()] = s.Handler()
	}
	first := g.servers[0].Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := first
		if rest, ok := strings.CutPrefix(r.URL.Path, StreamablePath+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			if named := byName[name]; named != nil {
				h = named // else the first says that there is nothing
			}
		}
		h.ServeHTTP(w, r)
	})
}

// Busy is that of [Server] for the whole group.
func (g *Group) Busy() bool { return slices.ContainsFunc(g.servers, (*Server).Busy) }

// End is that of [Server] for the whole group.
func (g *Group) End(gone func(auth.Identity) bool) {
	for _, s := range g.servers {
		s.End(gone)
	}
}

// Shutdown is that of [Server] for the whole group.
func (g *Group) Shutdown(ctx context.Context) error {
	errs := make([]error, len(g.servers))
	var wg sync.WaitGroup
	for i, s := range g.servers {
		wg.Go(func() { errs[i] = s.Shutdown(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
