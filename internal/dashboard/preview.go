package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Ports make links to the ports of sandboxes. A link leads to another origin.
type Ports interface {
	PortURL(ctx context.Context, p sandbox.Principal, id string, port int, good time.Duration) (link string, expires time.Time, err error)
}

// previewTime is how long the link of a preview is good.
const previewTime = time.Hour

// A previewView is the content of the page with a port of a sandbox in a frame.
type previewView struct {
	frame
	Box     sandbox.Sandbox
	Port    int
	Link    string
	Expires time.Time
}

// preview shows a port of a sandbox in a frame. What is in the frame is of another
// origin: it has a host name of its own, or the policy of its answer takes the origin
// from it. It can neither read this page nor navigate it.
func (s *Server) preview(w http.ResponseWriter, r *http.Request, sess *session) error {
	if s.opts.Ports == nil {
		return sandbox.Errorf(sandbox.NotFound, "this server shows no ports")
	}
	box, err := s.opts.Engine.Get(r.Context(), sess.id.Principal, sandbox.CanonicalID(r.PathValue("id")))
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(r.URL.Query().Get("port"))
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "port: it is not a number from 1 to 65535")
	}
	v := previewView{frame: s.frame(sess, "Port "+strconv.Itoa(port), ""), Box: box, Port: port}
	if v.Link, v.Expires, err = s.opts.Ports.PortURL(r.Context(), sess.id.Principal, box.ID, port, previewTime); err != nil {
		return err
	}
	u, err := url.Parse(v.Link)
	if err != nil {
		return err
	}
	source := u.Host // a policy's source has no query
	if hostName.MatchString(u.Host) {
		source = u.Scheme + "://" + u.Host + cmp.Or(u.EscapedPath(), "/")
	}
	s.showFraming(w, r, "preview", v, source)
	return nil
}
