package e2bapi

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Volume is an open workspace, which E2B calls a volume. Names of files are relative
// to it; "." is the volume. Errors wrap [sandbox.Invalid] for wrong names and
// [sandbox.NotFound] for missing files.
type Volume interface {
	Owner() sandbox.Principal
	Name() string
	Describe(name string) (sandbox.VolumeFile, error)
	// List describes the files of a directory down to a depth of at least 1.
	List(ctx context.Context, name string, depth, most int) ([]sandbox.VolumeFile, error)
	// Content opens a regular file. The caller closes it before Release.
	Content(ctx context.Context, name string) (io.ReadSeekCloser, fs.FileInfo, error)
	// Put writes a file by an atomic rename at its end. size is -1 if it is unknown.
	Put(ctx context.Context, name string, r io.Reader, size int64) (int64, error)
	// MakeDir makes a directory, with parents also those above it. Without, the error
	// wraps [sandbox.Conflict] if it exists.
	MakeDir(ctx context.Context, name string, parents bool) error
	SetAttributes(ctx context.Context, name string, a sandbox.VolumeAttributes) error
	Delete(ctx context.Context, name string) error
	Release()
}

// volumeName is E2B's pattern of names of new volumes.
var volumeName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// volumeInfo is a volume in E2B's format. The token and the domain are not in lists.
type volumeInfo struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
	Domain   string `json:"domain,omitempty"`
}

// volumeKey is the text for which the token of a volume is made. It is the identifier
// of no sandbox.
func volumeKey(id string) string { return "volume " + id }

// openVolume opens a volume of p. For any other principal it does not exist.
func (s *Server) openVolume(ctx context.Context, p sandbox.Principal, id string) (Volume, error) {
	v, err := s.opts.Engine.Volume(ctx, id)
	if err == nil && v.Owner() != p {
		v.Release()
		err = sandbox.Errorf(sandbox.NotFound, "not the owner")
	}
	if errors.Is(err, sandbox.NotFound) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no volume %s", short(id))
	}
	return v, err
}

func (s *Server) makeVolume(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		Name string `json:"name"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	if !volumeName.MatchString(in.Name) {
		return 0, nil, sandbox.Errorf(sandbox.Invalid, "name: %s is not made of letters, digits, _ and -", short(in.Name))
	}
	_, _, err := s.opts.Engine.WorkspaceOf(r.Context(), p, in.Name)
	if err == nil {
		return 0, nil, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "volume %s exists already", short(in.Name)), "connect to it by its ID, which the list of volumes has")
	}
	if !errors.Is(err, sandbox.NotFound) {
		return 0, nil, err
	}
	if _, err := s.opts.Engine.MakeWorkspace(r.Context(), p, in.Name); err != nil {
		return 0, nil, err
	}
	_, id, err := s.opts.Engine.WorkspaceOf(r.Context(), p, in.Name)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, s.volumeAnswer(r, id, in.Name), nil
}

// volumeAnswer returns the answer that gives access to the files of a volume.
func (s *Server) volumeAnswer(r *http.Request, id, name string) volumeInfo {
	return volumeInfo{id, name, s.opts.Access.Token(volumeKey(id)), s.domainOf(r)}
}

func (s *Server) volumeInfo(r *http.Request, p sandbox.Principal) (int, any, error) {
	id := r.PathValue("id")
	v, err := s.openVolume(r.Context(), p, id)
	if err != nil {
		return 0, nil, err
	}
	defer v.Release()
	return http.StatusOK, s.volumeAnswer(r, id, v.Name()), nil
}

// volumes lists all workspaces of p, whatever protocol made them.
func (s *Server) volumes(r *http.Request, p sandbox.Principal) (int, any, error) {
	all, err := s.opts.Engine.Workspaces(r.Context(), p)
	if err != nil {
		return 0, nil, err
	}
	list := []volumeInfo{}
	for _, w := range all {
		_, id, err := s.opts.Engine.WorkspaceOf(r.Context(), p, w.Name)
		if errors.Is(err, sandbox.NotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return 0, nil, err
		}
		list = append(list, volumeInfo{VolumeID: id, Name: w.Name})
	}
	return http.StatusOK, list, nil
}

func (s *Server) removeVolume(r *http.Request, p sandbox.Principal) (int, any, error) {
	v, err := s.openVolume(r.Context(), p, r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	name := v.Name()
	v.Release() // an open volume is in use
	return http.StatusNoContent, nil, s.opts.Engine.DeleteWorkspace(r.Context(), p, name)
}

// contentPath is the path below which the files of volumes are served.
const contentPath = "/volumecontent/"

// isVolumeFile reports whether a request transfers a file of a volume.
func isVolumeFile(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, contentPath) && strings.HasSuffix(r.URL.Path, "/file")
}

// identifyVolume returns the owner of the volume that a request for files of volumes
// names, if the request has the volume's token. Without, the error does not reveal
// whether the volume exists.
func (s *Server) identifyVolume(r *http.Request) (auth.Identity, error) {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, contentPath), "/")
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !s.opts.Access.Check(volumeKey(id), token) {
		return auth.Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "there is no token of the volume, or one of another")
	}
	v, err := s.opts.Engine.Volume(r.Context(), id)
	if errors.Is(err, sandbox.NotFound) {
		return auth.Identity{}, sandbox.Errorf(sandbox.NotFound, "there is no volume %s", short(id))
	}
	if err != nil {
		return auth.Identity{}, err
	}
	defer v.Release()
	// The client had both scopes when it got the token; see grant.
	who := auth.Identity{Principal: v.Owner(), Scopes: []auth.Scope{auth.ScopeRun, auth.ScopeFiles}}
	gone, err := s.opts.Auth.Gone(r.Context(), who)
	if err == nil && gone {
		err = sandbox.Errorf(sandbox.Unauthenticated, "the tokens of the volume's owner were revoked")
	}
	return who, err
}
