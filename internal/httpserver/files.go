package httpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Files gives access to the files of workspaces. A workspace's ID is enough for
// reading; its handle also needs a signature.
type Files interface {
	// OpenFile opens a file of the workspace with that ID or handle. The caller
	// closes it.
	OpenFile(ctx context.Context, idOrHandle, name string) (File, error)
	// PutFile writes a file, with an atomic rename at the end. size is -1 if it
	// is not known.
	PutFile(ctx context.Context, handle, name string, r io.Reader, size int64) (int64, error)
	// ExportArchive writes the workspace with that handle as a tar archive.
	// ImportArchive extracts an archive into the workspace, completely or not at
	// all.
	ExportArchive(ctx context.Context, handle string, w io.Writer) error
	ImportArchive(ctx context.Context, handle string, r io.Reader) error

	// Verify checks the query of a signed URL; the name [ArchiveName] means the
	// whole workspace. It returns the signature for Spend, which marks the
	// signature as used. Spend returns false if the signature was already used.
	Verify(method, handle, name string, query url.Values) (signature []byte, expires time.Time, err error)
	Spend(ctx context.Context, signature []byte, expires time.Time) (bool, error)

	// WorkspaceOwner returns the owner of the workspace with that ID or handle.
	WorkspaceOwner(ctx context.Context, idOrHandle string) (sandbox.Principal, error)

	// These act on the principal's own workspaces.
	Workspaces(ctx context.Context, p sandbox.Principal) ([]sandbox.Workspace, error)
	Workspace(ctx context.Context, p sandbox.Principal, name string) (sandbox.Workspace, error)
	DeleteWorkspace(ctx context.Context, p sandbox.Principal, name string) error
	ExportWorkspace(ctx context.Context, p sandbox.Principal, name string, w io.Writer) error
	ImportWorkspace(ctx context.Context, p sandbox.Principal, name string, r io.Reader) error
}

// A File is a file that is open for reading.
type File interface {
	io.ReadSeekCloser
	Stat() (fs.FileInfo, error)
	// Tag returns a text that is different after each change of the file.
	Tag() string
}

const filesPath = "/files/"

// The URL of a whole workspace is its handle with archiveExt. Its signature is
// for ArchiveName, which is not a valid file name.
const (
	archiveExt  = ".tar"
	ArchiveName = "."
)

// isID and isHandle distinguish the two kinds of workspace names by their length.
// IDs with 16 digits come from mcp-code-runner.
func isID(s string) bool     { return (len(s) == 64 || len(s) == 16) && isHex(s) }
func isHandle(s string) bool { return len(s) == 32 && isHex(s) }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// fileTarget parses the path of a file's URL.
func fileTarget(u *url.URL) (workspace, name string, err error) {
	rest, ok := strings.CutPrefix(u.Path, filesPath)
	if handle, whole := strings.CutSuffix(rest, archiveExt); ok && whole && isHandle(handle) {
		return handle, ArchiveName, nil
	}
	workspace, name, found := strings.Cut(rest, "/")
	if !ok || !found || name == "" || name == ArchiveName || strings.HasSuffix(name, "/") || !isID(workspace) && !isHandle(workspace) {
		return "", "", errNoFile()
	}
	return workspace, name, nil
}

// errNoFile gives no reason: the error does not reveal whether another principal
// has the workspace.
func errNoFile() error { return sandbox.Errorf(sandbox.NotFound, "there is no such file") }

// serveFile serves one file. There are no directory listings: access to one file
// must not reveal others.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request) {
	protectFile(w.Header())
	workspace, name, err := fileTarget(r.URL)
	if err != nil {
		writeError(w, err)
		return
	}
	use := s.getFile
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPut:
		use = s.putFile
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		refuse(w, http.StatusMethodNotAllowed, "invalid", "files are read with GET and written with PUT", "")
		return
	}
	if err := s.verifyFile(r, workspace, name); err != nil {
		writeError(w, err)
		return
	}
	owner, err := s.opts.Files.WorkspaceOwner(r.Context(), workspace)
	if errors.Is(err, sandbox.NotFound) {
		err = errNoFile()
	}
	if err != nil {
		s.fileError(w, "find workspace", err)
		return
	}
	// The owner of the workspace made the link, so the request counts for the
	// owner.
	id := auth.Identity{Principal: owner}
	if err := s.checkOwner(r.Context(), id); err != nil {
		writeError(w, err)
		return
	}
	r = r.WithContext(auth.NewContext(r.Context(), id))
	s.stream(w, r, s.live.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		use(w, r, workspace, name)
	})), false, writeErrorTo)
}

// verifyFile checks that a URL permits the request.
func (s *Server) verifyFile(r *http.Request, workspace, name string) error {
	query := r.URL.Query()
	if isID(workspace) && (r.Method == http.MethodPut || !query.Has("sig")) {
		return nil // putFile refuses a PUT with an ID
	}
	_, _, err := s.opts.Files.Verify(r.Method, workspace, name, query)
	return err
}

// protectFile sets headers so that a file from a sandbox cannot act as a page of
// this server. It runs no scripts, sends no forms, is not shown in frames, and
// does not reveal its URL.
func protectFile(h http.Header) {
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Robots-Tag", "noindex")
}

func (s *Server) getFile(w http.ResponseWriter, r *http.Request, workspace, name string) {
	if name == ArchiveName {
		s.getArchive(w, r, workspace)
		return
	}
	f, err := s.opts.Files.OpenFile(r.Context(), workspace, name)
	if errors.Is(err, sandbox.NotFound) {
		err = errNoFile()
	}
	if err != nil {
		s.fileError(w, "read file", err)
		return
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		s.fileError(w, "read file", err)
		return
	}
	h := w.Header()
	kind, passive := contentType(name)
	disposition := "attachment"
	if passive && !r.URL.Query().Has("download") {
		disposition = "inline"
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", contentDisposition(disposition, path.Base(name)))
	h.Set("Cache-Control", "private, no-cache")
	h.Set("ETag", `"`+f.Tag()+`"`)
	http.ServeContent(w, r, "", fi.ModTime(), f)
}

// putFile receives an upload. A signed URL for writing is valid for one upload.
func (s *Server) putFile(w http.ResponseWriter, r *http.Request, workspace, name string) {
	if !isHandle(workspace) {
		writeError(w, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "this URL allows only reading"), "ask for a URL to write, with file_url and method PUT"))
		return
	}
	sig, expires, err := s.opts.Files.Verify(r.Method, workspace, name, r.URL.Query())
	if err != nil {
		writeError(w, err)
		return
	}
	if r.Header.Get("Content-Range") != "" {
		writeError(w, sandbox.Errorf(sandbox.Invalid, "Content-Range: only a complete file can be written"))
		return
	}
	// The body itself shows whether it is complete. The request's context would
	// also end if the client closes its half of the connection after the upload.
	ctx := untilEvicted(r.Context())
	owner, _ := auth.FromContext(ctx)
	body := &uploadReader{r: r.Body, rc: http.NewResponseController(w), end: func() error {
		if err := s.checkOwner(ctx, owner); err != nil {
			return err // revoked during the upload
		}
		fresh, err := s.opts.Files.Spend(ctx, sig, expires)
		if err == nil && !fresh {
			err = sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "sig: the URL was already used, and allows one upload"), "ask for a new one")
		}
		return err
	}}
	var n int64
	if name == ArchiveName {
		err = s.opts.Files.ImportArchive(ctx, workspace, body)
		n = body.n
	} else {
		n, err = s.opts.Files.PutFile(ctx, workspace, name, body, r.ContentLength)
	}
	if ctx.Err() != nil && err != nil {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the server ended the upload after %d bytes in favour of other clients; the old file stays", body.n), "try again later")
	} else if err != nil {
		if body.err != nil && !errors.Is(body.err, io.EOF) && sandbox.KindOf(body.err) == sandbox.Internal {
			err = sandbox.Errorf(sandbox.Invalid, "the upload broke off after %d bytes; the old file stays: %w", body.n, body.err)
		}
	}
	if err != nil {
		s.fileError(w, "write file", err)
		return
	}
	writeJSON(w, http.StatusCreated, map[string]any{"path": name, "size": n})
}

// getArchive serves a whole workspace as an archive.
func (s *Server) getArchive(w http.ResponseWriter, r *http.Request, handle string) {
	out := &archiveWriter{w: w, name: handle}
	if r.Method == http.MethodHead {
		_ = out.begin() // the archive is made while it is sent, so its size is unknown
		return
	}
	if err := out.finish(s.opts.Log, s.opts.Files.ExportArchive(r.Context(), handle, out)); err != nil {
		s.fileError(w, "export workspace", err)
	}
}

// fileError answers with an error, and logs internal errors.
func (s *Server) fileError(w http.ResponseWriter, op string, err error) {
	if sandbox.KindOf(err) == sandbox.Internal {
		s.opts.Log.Error("serve files", "op", op, "error", err)
	}
	if errors.Is(err, sandbox.Exhausted) {
		refuse(w, http.StatusInsufficientStorage, string(sandbox.Exhausted), err.Error(), sandbox.HintOf(err))
		return
	}
	writeError(w, err)
}

// An uploadReader reads a body without a size limit. Each read has a timeout. At
// the end of the body it calls end, whose error becomes the body's error.
type uploadReader struct {
	r   io.Reader
	rc  *http.ResponseController
	end func() error
	n   int64
	err error
}

func (u *uploadReader) Read(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	_ = u.rc.SetReadDeadline(time.Now().Add(ioTimeout)) // ignored: without deadlines there is no connection
	n, err := u.r.Read(p)
	u.n += int64(n)
	if errors.Is(err, io.EOF) {
		if e := u.end(); e != nil {
			err = e
		}
	}
	u.err = err
	return n, err
}

// passiveTypes are types that a browser can display safely. All other files are
// sent as attachments. The list is fixed, so that answers do not depend on the
// machine's own list of types.
var passiveTypes = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".avif": "image/avif", ".bmp": "image/bmp", ".ico": "image/x-icon",
	".txt": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8",
	".csv": "text/csv; charset=utf-8", ".tsv": "text/tab-separated-values; charset=utf-8", ".json": "application/json",
	".py": "text/plain; charset=utf-8", ".go": "text/plain; charset=utf-8", ".sh": "text/plain; charset=utf-8",
	".mp3": "audio/mpeg", ".wav": "audio/wav", ".ogg": "audio/ogg", ".mp4": "video/mp4", ".webm": "video/webm",
}

var otherTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8", ".svg": "image/svg+xml", ".xml": "application/xml",
	".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".pdf": "application/pdf", ".zip": "application/zip", ".gz": "application/gzip", ".tar": "application/x-tar", ".tgz": "application/gzip",
	".parquet": "application/vnd.apache.parquet", ".wasm": "application/wasm",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}

func contentType(name string) (kind string, passive bool) {
	ext := strings.ToLower(path.Ext(name))
	if kind, passive = passiveTypes[ext]; passive {
		return kind, true
	}
	return cmp.Or(otherTypes[ext], "application/octet-stream"), false
}

// contentDisposition returns a Content-Disposition header. It omits the name if
// it cannot be encoded.
func contentDisposition(how, name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, name)
	if v := mime.FormatMediaType(how, map[string]string{"filename": name}); v != "" {
		return v
	}
	return how
}

// serveWorkspaces registers the handlers with which a principal lists, measures,
// deletes, exports and imports its workspaces.
func (s *Server) serveWorkspaces(mux *routes, door func(h http.Handler, lasts func(*http.Request) bool) http.Handler) {
	handle := func(pattern string, lasts func(*http.Request) bool, do func(w http.ResponseWriter, r *http.Request, p sandbox.Principal) error) {
		mux.Handle(pattern, door(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, _ := auth.FromContext(r.Context())
			if !id.May(auth.ScopeFiles, r.Method == http.MethodGet || r.Method == http.MethodHead) {
				refuse(w, http.StatusForbidden, "forbidden", "the token lacks the scope files", "use a token that was created with that scope")
				return
			}
			if err := do(w, r, id.Principal); err != nil {
				s.fileError(w, "serve workspaces", err)
			}
		}), lasts))
	}
	files := s.opts.Files
	handle("GET /workspaces", never, func(w http.ResponseWriter, r *http.Request, p sandbox.Principal) error {
		list, err := files.Workspaces(r.Context(), p)
		if err == nil {
			writeJSON(w, http.StatusOK, map[string]any{"workspaces": list})
		}
		return err
	})
	handle("GET /workspaces/{name}", never, func(w http.ResponseWriter, r *http.Request, p sandbox.Principal) error {
		ws, err := files.Workspace(r.Context(), p, r.PathValue("name"))
		if err == nil {
			writeJSON(w, http.StatusOK, ws)
		}
		return err
	})
	handle("DELETE /workspaces/{name}", never, func(w http.ResponseWriter, r *http.Request, p sandbox.Principal) error {
		err := files.DeleteWorkspace(r.Context(), p, r.PathValue("name"))
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
		return err
	})
	handle("GET /workspaces/{name}/archive", always, func(w http.ResponseWriter, r *http.Request, p sandbox.Principal) error {
		out := &archiveWriter{w: w, name: r.PathValue("name")}
		return out.finish(s.opts.Log, files.ExportWorkspace(r.Context(), p, out.name, out))
	})
	handle("PUT /workspaces/{name}/archive", always, func(w http.ResponseWriter, r *http.Request, p sandbox.Principal) error {
		body := &uploadReader{r: r.Body, rc: http.NewResponseController(w), end: func() error { return nil }}
		if err := files.ImportWorkspace(r.Context(), p, r.PathValue("name"), body); err != nil {
			return err
		}
		ws, err := files.Workspace(r.Context(), p, r.PathValue("name"))
		if err == nil {
			writeJSON(w, http.StatusCreated, ws)
		}
		return err
	})
}

// An archiveWriter sends the header with the first byte of the archive. Until
// then, the answer can still be an error.
type archiveWriter struct {
	w     http.ResponseWriter
	name  string
	begun bool
}

func (a *archiveWriter) begin() error {
	a.begun = true
	protectFile(a.w.Header())
	a.w.Header().Set("Content-Type", "application/x-tar")
	a.w.Header().Set("Content-Disposition", contentDisposition("attachment", a.name+".tar"))
	a.w.WriteHeader(http.StatusOK)
	return nil
}

// finish ends the answer after an export that returned err. It returns the error
// if the answer can still be one.
func (a *archiveWriter) finish(log *slog.Logger, err error) error {
	if err == nil && !a.begun {
		return a.begin()
	}
	if err != nil && a.begun {
		// Only an aborted connection shows the client that the archive is
		// incomplete.
		log.Error("export workspace", "error", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

func (a *archiveWriter) Write(p []byte) (int, error) {
	if !a.begun {
		if err := a.begin(); err != nil {
			return 0, err
		}
	}
	return a.w.Write(p)
}

// loggedPath returns the path for the log. It shortens a file's path, which
// contains a secret.
func loggedPath(p string) string {
	if strings.HasPrefix(p, filesPath) {
		return fmt.Sprintf("%s…", filesPath)
	}
	return p
}
