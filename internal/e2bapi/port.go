package e2bapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/preview"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// port forwards a request to the program on a port of a sandbox. The client has
// the sandbox's access token, or the port needs none.
func (s *Server) port(w http.ResponseWriter, r *http.Request, p sandbox.Principal, t target) {
	sb, err := s.awake(r.Context(), p, t.id)
	if err != nil {
		s.Refuse(w, r, portGone(t, err))
		return
	}
	// The program must not see the client's credentials.
	out := r.Clone(r.Context())
	for _, name := range []string{headerSandbox, headerPort, headerAccess, headerTraffic, headerKey} {
		out.Header.Del(name)
	}
	_, err = s.identify(out)
	preview.Serve(w, out, preview.Target{
		Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := s.opts.Engine.DialPort(ctx, p, t.id, t.port)
			switch {
			case errors.Is(err, sandbox.Unavailable):
				err = portClosed(t)
			case errors.Is(err, sandbox.Conflict), errors.Is(err, sandbox.NotFound):
				err = portGone(t, err)
			}
			return conn, err
		},
		Port: t.port, Network: sb.Network,
		Host:              strings.ReplaceAll(sb.Labels[labelHost], portPlace, strconv.Itoa(t.port)),
		KeepAuthorization: errors.Is(err, sandbox.Unauthenticated),
		Refuse: func(w http.ResponseWriter, err error) {
			if errors.Is(err, sandbox.Unavailable) { // the program's answer is none of HTTP
				err = portGone(t, err)
			}
			s.Refuse(w, r, err)
		},
	})
}
