package mount

import (
	"io"
	"net/http"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// BoundForward keeps a request to a guest within the quota of its workspace. A
// request that starts a program is treated like a run, and an upload like the
// server's own. For an upload that counts, it returns the reader, and the
// caller must call Done. A nil Mount bounds nothing.
func (m *Mount) BoundForward(req *http.Request) (*Reader, error) {
	if m == nil || req.Method != http.MethodPost {
		return nil, nil
	}
	switch req.URL.Path {
	case guestapi.ProcStart, guestapi.PathExecute:
		return nil, m.Admit(req.Context(), nil)
	case guestapi.PathFiles:
	default:
		return nil, nil
	}
	// Without a path, the form in the body names the files.
	if path := req.URL.Query().Get("path"); strings.HasPrefix(path, "/") {
		if _, ok := Within(path); !ok {
			return nil, nil
		}
	}
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	if err := m.Admit(req.Context(), nil); err != nil {
		return nil, err
	}
	size := req.ContentLength
	if size <= 0 || req.Header.Get("Content-Encoding") != "" {
		size = -1
	}
	q, err := m.Bounded(req.Context(), req.Body, size, false)
	if err != nil {
		return nil, err
	}
	req.Body = readCloser{q, req.Body}
	return q, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}
