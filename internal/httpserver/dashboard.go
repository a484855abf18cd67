package httpserver

import (
	"context"
	"net/http"
	"strings"
)

// A Dashboard serves pages for people, who have sessions instead of tokens.
type Dashboard interface {
	http.Handler
	// Authenticate calls next for requests with a session, with the identity in the
	// context. It answers all others. It refuses requests that a page of another
	// origin made.
	Authenticate(next http.Handler) http.Handler
	// Refuse answers a request with an error.
	Refuse(w http.ResponseWriter, r *http.Request, err error)
	// Lasts reports whether a request with a session may last as long as its client
	// wants.
	Lasts(r *http.Request) bool
}

// dashboardPath is the path of the dashboard.
const dashboardPath = "/ui/"

// serveDashboard serves the dashboard, if there is one. Its requests pass no check of
// the origin here, because the dashboard's own check is stricter, and because no page
// of another origin may read its answers.
func (s *Server) serveDashboard(mux *routes, g *guard, limits *limits) {
	d := s.opts.Dashboard
	if d == nil {
		return
	}
	pages := s.untilClosing(s.bound(d, d.Refuse))
	mux.Handle(dashboardPath, g.checkHost(d.Authenticate(noteCaller(limits.limit(s.admit(pages, d.Lasts, d.Refuse), d.Refuse)))))
}

// untilClosing ends the requests when the server shuts down.
func (s *Server) untilClosing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if s.opts.Dashboard.Lasts(r) {
			defer context.AfterFunc(s.closing, cancel)()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// isVisitor reports whether a person opens the root of the server with a browser. All
// other clients get the answer for programs.
func (s *Server) isVisitor(r *http.Request) bool {
	return s.opts.Dashboard != nil && r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		strings.Contains(r.Header.Get("Accept"), "text/html")
}
