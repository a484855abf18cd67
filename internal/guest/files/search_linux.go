package files

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guest/search"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) search(r *http.Request, in *sandbox.SearchRequest) (found *sandbox.Found, err error) {
	err = s.walk(r, in.Path, nil, func(name string) error {
		found, err = search.Find(r.Context(), in, name)
		return err
	})
	return found, err
}

// glob lists the files that match a glob.
func (s *Server) glob(r *http.Request, in *guestapi.GlobRequest) (*guestapi.GlobResponse, error) {
	if in.Glob == "" || in.Depth < 0 {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "glob: is empty, or depth is negative")
	}
	d := describer{extended: true}
	out := &guestapi.GlobResponse{ListDirResponse: guestapi.ListDirResponse{Entries: []guestapi.Entry{}}}
	room := maxListBytes
	err := s.walk(r, in.Path, in.RawPath, func(root string) (err error) {
		out.Cut, err = search.List(r.Context(), root, in.Glob, in.Depth, func(name string) error {
			if room < 0 || len(out.Entries) == guestapi.MaxListEntries {
				out.Omitted++
				return nil
			}
			e, err := d.entry(name)
			if err != nil {
				return nil // it vanished
			}
			room -= weight(&e)
			out.Entries = append(out.Entries, e)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// walk calls f with the rights of a request's user, when there is a place for it.
func (s *Server) walk(r *http.Request, name string, raw []byte, f func(name string) error) error {
	c, name, err := s.fileRequest(r, name, raw)
	if err != nil {
		return err
	}
	select {
	case s.searching <- struct{}{}:
		defer func() { <-s.searching }()
	case <-r.Context().Done():
		return rpc.Errorf(guestapi.CodeCanceled, "%s: %v", name, r.Context().Err())
	}
	return s.accounts.As(c.Account, func() error { return f(name) })
}
