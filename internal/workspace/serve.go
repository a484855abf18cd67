package workspace

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ServedAt is the path below which [Set.Handler] serves.
const ServedAt = "/workspaces"

// Headers of answers.
const (
	headerInfo  = "X-Workspace-File"  // fileInfo, as JSON
	headerError = "X-Workspace-Error" // wireError, as JSON; for an export, a trailer
)

// A wireError is the form of an error on the wire.
type wireError struct {
	Kind sandbox.Kind `json:"kind"`
	Text string       `json:"text"`
	Hint string       `json:"hint,omitempty"`
}

// fileInfo is the form of a file's description on the wire.
type fileInfo struct {
	FileName string      `json:"name"`
	Bytes    int64       `json:"bytes"`
	Bits     fs.FileMode `json:"bits"`
	Modified time.Time   `json:"modified"`
	Version  string      `json:"version"`
}

func (f fileInfo) Name() string       { return f.FileName }
func (f fileInfo) Size() int64        { return f.Bytes }
func (f fileInfo) Mode() fs.FileMode  { return f.Bits }
func (f fileInfo) ModTime() time.Time { return f.Modified }
func (f fileInfo) IsDir() bool        { return f.Bits.IsDir() }
func (f fileInfo) Sys() any           { return nil }

// Answers with one value.
type (
	idAnswer   struct{ ID ID }
	madeAnswer struct{ Made bool }
	nameAnswer struct{ Name string }
	sizeAnswer struct{ Size int64 }
	diskAnswer struct {
		Used int64
		OK   bool
	}
	clockAnswer struct{ Nanos int64 }
)

// Handler serves the set to a [Remote]. It does not authenticate: every client
// that reaches it may do everything with every workspace.
func (s *Set) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, err := do(r)
			if err != nil {
				refuse(w, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer) // an error means that the client is gone
		})
	}
	id := func(r *http.Request) ID { return ID(r.PathValue("id")) }
	handle("GET /find/{id}", func(r *http.Request) (any, error) {
		found, ok := s.Find(string(id(r)))
		if !ok {
			return nil, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
		}
		return idAnswer{found}, nil
	})
	handle("POST /make/{id}", func(r *http.Request) (any, error) {
		made, err := s.Make(id(r))
		return madeAnswer{made}, err
	})
	handle("POST /remove/{id}", func(r *http.Request) (any, error) {
		name, err := s.takeAway(id(r))
		return nameAnswer{name}, err
	})
	handle("POST /purge/{name}", func(r *http.Request) (any, error) {
		return struct{}{}, s.staging.RemoveAll(filepath.Base(r.PathValue("name")))
	})
	handle("GET /disk", func(*http.Request) (any, error) {
		used, ok := diskUsed(s.path)
		return diskAnswer{used, ok}, nil
	})
	handle("GET /clock", func(*http.Request) (any, error) { return clockAnswer{Clock().UnixNano()}, nil })
	with := func(pattern string, do func(ws *Workspace, w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			ws, err := s.Open(id(r))
			if err == nil {
				err = errors.Join(do(ws, w, r), ws.Close())
			}
			if err != nil {
				refuse(w, err)
			}
		})
	}
	with("GET /open/{id}", func(*Workspace, http.ResponseWriter, *http.Request) error { return nil })
	with("GET /file/{id}", serveFile)
	with("PUT /file/{id}", func(ws *Workspace, w http.ResponseWriter, r *http.Request) error {
		n, err := ws.Write(r.Context(), r.URL.Query().Get("name"), r.Body)
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(sizeAnswer{n})
	})
	with("GET /measure/{id}", func(ws *Workspace, w http.ResponseWriter, r *http.Request) error {
		u, err := ws.Measure(r.Context())
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(u)
	})
	with("GET /snapshot/{id}", func(ws *Workspace, w http.ResponseWriter, r *http.Request) error {
		snap, err := ws.Snapshot(r.Context())
		if err != nil {
			return err
		}
		return snap.Save(w)
	})
	with("GET /export/{id}", func(ws *Workspace, w http.ResponseWriter, r *http.Request) error {
		most, err := number(r, "most")
		if err != nil {
			return err
		}
		w.Header().Set("Trailer", headerError)
		w.Header().Set("Content-Type", "application/x-tar")
		_, err = ws.Export(r.Context(), w, most)
		w.Header().Set(headerError, encodeError(err))
		return nil
	})
	with("PUT /import/{id}", func(ws *Workspace, w http.ResponseWriter, r *http.Request) error {
		bytes, err1 := number(r, "bytes")
		files, err2 := number(r, "files")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		counts, err := ws.Import(r.Context(), r.Body, bytes, files)
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(counts)
	})
	return http.StripPrefix(ServedAt, mux)
}

// serveFile serves a file or a range of it.
func serveFile(ws *Workspace, w http.ResponseWriter, r *http.Request) error {
	f, info, err := ws.Read(r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := json.Marshal(fileInfo{info.Name(), info.Size(), info.Mode(), info.ModTime(), safepath.Version(info)})
	if err != nil {
		return err
	}
	w.Header().Set(headerInfo, strconv.QuoteToASCII(string(text)))
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, f)
	return nil
}

func number(r *http.Request, name string) (int64, error) {
	n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	if err != nil {
		return 0, sandbox.Errorf(sandbox.Invalid, "%s: %w", name, err)
	}
	return n, nil
}

func encodeError(err error) string {
	if err == nil {
		return ""
	}
	kind := sandbox.KindOf(err)
	if errors.Is(err, os.ErrPermission) {
		kind = sandbox.Internal
	}
	text, _ := json.Marshal(wireError{kind, err.Error(), sandbox.HintOf(err)})
	return strconv.QuoteToASCII(string(text))
}

func refuse(w http.ResponseWriter, err error) {
	w.Header().Set(headerError, encodeError(err))
	http.Error(w, "", http.StatusUnprocessableEntity)
}

// OpenServed opens the workspaces of a directory for use by a [Remote]. The caller
// closes the Set.
func OpenServed(path string) (*Set, error) {
	// Accept both forms of directory names, because a Remote may use either.
	return open(&Set{path: path, theirs: &Conversations{}})
}
