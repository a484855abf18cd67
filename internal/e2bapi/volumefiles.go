package e2bapi

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of a list of files of a volume.
const (
	maxVolumeFiles = 10_000
	maxVolumeDepth = 100
)

// volumeEntry is a file of a volume, in E2B's format.
type volumeEntry struct {
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	Path   string    `json:"path"`
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"`
	UID    int       `json:"uid"`
	GID    int       `json:"gid"`
	Atime  time.Time `json:"atime"`
	Mtime  time.Time `json:"mtime"`
	Ctime  time.Time `json:"ctime"`
	Target string    `json:"target,omitempty"`
}

func volumeEntryOf(f sandbox.VolumeFile) volumeEntry {
	kind := string(f.Type)
	if f.Type == sandbox.TypeOther {
		kind = "unknown"
	}
	return volumeEntry{
		Name: path.Base(f.Path), Type: kind, Path: f.Path, Size: f.Size, Mode: f.Mode, UID: f.UID, GID: f.GID,
		Atime: micros(f.Accessed), Mtime: micros(f.Modified), Ctime: micros(f.Changed), Target: f.Target,
	}
}

// micros cuts a time to the precision of Python's times.
func micros(t time.Time) time.Time { return t.Truncate(time.Microsecond) }

// fileName returns the name in the volume that a request is for.
func fileName(r *http.Request) (string, error) {
	text := r.URL.Query().Get("path")
	if text == "" {
		return "", sandbox.Errorf(sandbox.Invalid, "path: it is missing")
	}
	if name := strings.TrimLeft(text, "/"); name != "" {
		return name, nil
	}
	return ".", nil
}

// inVolume wraps a handler for files of volumes. f's value becomes the body of the
// answer; nil is no body.
func (s *Server) inVolume(f func(r *http.Request, v Volume, name string) (int, any, error)) http.HandlerFunc {
	return s.answer(func(r *http.Request, p sandbox.Principal) (int, any, error) {
		name, err := fileName(r)
		if err != nil {
			return 0, nil, err
		}
		v, err := s.openVolume(r.Context(), p, r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		defer v.Release()
		return f(r, v, name)
	})
}

// described answers with the description of a file.
func described(status int, v Volume, name string) (int, any, error) {
	f, err := v.Describe(name)
	return status, volumeEntryOf(f), err
}

func (s *Server) describeFile(_ *http.Request, v Volume, name string) (int, any, error) {
	return described(http.StatusOK, v, name)
}

func (s *Server) listFiles(r *http.Request, v Volume, name string) (int, any, error) {
	depth, err := number(r.URL.Query(), "depth", maxVolumeDepth)
	if err != nil {
		return 0, nil, err
	}
	if depth == nil {
		one := 1
		depth = &one
	}
	files, err := v.List(r.Context(), name, max(*depth, 1), maxVolumeFiles)
	if err != nil {
		return 0, nil, err
	}
	list := make([]volumeEntry, 0, len(files))
	for _, f := range files {
		list = append(list, volumeEntryOf(f))
	}
	return http.StatusOK, list, nil
}

func (s *Server) makeDir(r *http.Request, v Volume, name string) (int, any, error) {
	a, force, err := attributes(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	if err := v.MakeDir(r.Context(), name, force != nil && *force); err != nil {
		return 0, nil, err
	}
	if err := setAttributes(r, v, name, a); err != nil {
		return 0, nil, err
	}
	return described(http.StatusCreated, v, name)
}

func (s *Server) putFile(r *http.Request, v Volume, name string) (int, any, error) {
	a, force, err := attributes(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	if force != nil && !*force {
		if _, err := v.Describe(name); err == nil {
			return 0, nil, sandbox.Errorf(sandbox.Conflict, "path: %s exists already, and force is not set", short(name))
		}
	}
	if _, err := v.Put(r.Context(), name, r.Body, r.ContentLength); err != nil {
		return 0, nil, err
	}
	if err := setAttributes(r, v, name, a); err != nil {
		return 0, nil, err
	}
	return described(http.StatusCreated, v, name)
}

func (s *Server) changeFile(r *http.Request, v Volume, name string) (int, any, error) {
	var a sandbox.VolumeAttributes
	var in struct {
		UID  *int    `json:"uid"`
		GID  *int    `json:"gid"`
		Mode *uint32 `json:"mode"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	a.UID, a.GID, a.Mode = in.UID, in.GID, in.Mode
	if err := setAttributes(r, v, name, a); err != nil {
		return 0, nil, err
	}
	return described(http.StatusOK, v, name)
}

func (s *Server) removeFile(r *http.Request, v Volume, name string) (int, any, error) {
	if path.Clean(name) == "." {
		return 0, nil, sandbox.Errorf(sandbox.Invalid, "path: / is the volume itself; remove that by its ID")
	}
	return http.StatusNoContent, nil, v.Delete(r.Context(), name)
}

// getFile answers with the content of a file.
func (s *Server) getFile(w http.ResponseWriter, r *http.Request) {
	err := s.sendFile(w, r)
	if err != nil {
		s.Refuse(w, r, err)
	}
}

// sendFile answers with the content of a file, unless it returns an error.
func (s *Server) sendFile(w http.ResponseWriter, r *http.Request) error {
	name, err := fileName(r)
	if err != nil {
		return err
	}
	id, _ := auth.FromContext(r.Context())
	v, err := s.openVolume(r.Context(), id.Principal, r.PathValue("id"))
	if err != nil {
		return err
	}
	defer v.Release()
	f, info, err := v.Content(r.Context(), name)
	if err != nil {
		return err
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment")
	h.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}

// setAttributes changes the attributes that a request names, if there are any.
func setAttributes(r *http.Request, v Volume, name string, a sandbox.VolumeAttributes) error {
	if a == (sandbox.VolumeAttributes{}) {
		return nil
	}
	return v.SetAttributes(r.Context(), name, a)
}

// attributes reads the attributes of a new file, and the parameter force, which is nil
// if it is not set.
func attributes(q url.Values) (a sandbox.VolumeAttributes, force *bool, err error) {
	if a.UID, err = number(q, "uid", 1<<31-1); err != nil {
		return a, nil, err
	}
	if a.GID, err = number(q, "gid", 1<<31-1); err != nil {
		return a, nil, err
	}
	mode, err := number(q, "mode", int(fs.ModePerm))
	if err != nil {
		return a, nil, err
	}
	if mode != nil {
		bits := uint32(*mode)
		a.Mode = &bits
	}
	if text := q.Get("force"); text != "" {
		b, err := strconv.ParseBool(text)
		if err != nil {
			return a, nil, sandbox.Errorf(sandbox.Invalid, "force: %s is neither true nor false", short(text))
		}
		force = &b
	}
	return a, force, nil
}

// number reads a number between 0 and most; nil means absent.
func number(q url.Values, name string, most int) (*int, error) {
	text := q.Get(name)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s: %s is not a number between 0 and %s", name, short(text), fmt.Sprint(most))
	}
	return &n, nil
}
