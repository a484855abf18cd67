package dashboard

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The bounds of previews.
const (
	maxPreview = 128 << 10 // bytes of a text
	maxPicture = 8 << 20   // bytes of a picture
	headBytes  = 64        // bytes that tell the type of a picture
)

// A filesView is the content of the page of a directory.
type filesView struct {
	frame
	Box   sandbox.Sandbox
	Path  string
	Trail []place
	Files []fileRow
	More  bool // there are more entries
}

// A place is a directory above another one.
type place struct{ Name, Link string }

// A fileRow is an entry of a directory.
type fileRow struct {
	sandbox.File
	Name, Link string
}

// A fileView is the content of the page of a file.
type fileView struct {
	frame
	Box     sandbox.Sandbox
	File    sandbox.File
	Trail   []place
	Text    []codeLine
	Picture string // path of the picture, or ""
	Cut     bool   // the text is only the beginning
	Binary  bool   // the content is neither a text nor a picture
	Link    string // of the download
}

// fileLink returns the path of a page about a file or a directory.
func fileLink(id, page, name string) string {
	return sandboxPath(id) + "/" + page + "?" + url.Values{"path": {name}}.Encode()
}

// trail returns the directories of a path, from the root on.
func trail(id, name string) []place {
	list := []place{{"/", fileLink(id, "files", "/")}}
	at := ""
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if part != "" {
			at += "/" + part
			list = append(list, place{part, fileLink(id, "files", at)})
		}
	}
	return list
}

// filesOf returns the sandbox and the path of a request about files. The error wraps
// [sandbox.Forbidden] if the person's token lacks the scope files.
func (s *Server) filesOf(r *http.Request, sess *session) (sandbox.Sandbox, string, error) {
	if !sess.id.May(auth.ScopeFiles, r.Method == http.MethodGet) {
		return sandbox.Sandbox{}, "", sandbox.WithHint(sandbox.Errorf(sandbox.Forbidden, "your token lacks the scope files"),
			"the operator makes a token with it: glovebox token create NAME")
	}
	box, err := s.opts.Engine.Get(r.Context(), sess.id.Principal, sandbox.CanonicalID(r.PathValue("id")))
	if err == nil && box.State == sandbox.Stopped {
		err = sandbox.Errorf(sandbox.Conflict, "the sandbox has stopped, and its files are gone")
	}
	return box, path.Clean("/" + cmp.Or(r.URL.Query().Get("path"), sandbox.WorkDir)), err
}

func (s *Server) files(w http.ResponseWriter, r *http.Request, sess *session) error {
	box, dir, err := s.filesOf(r, sess)
	if err != nil {
		return err
	}
	list, more, err := s.opts.Engine.ListFiles(r.Context(), sess.id.Principal, box.ID, dir, 1)
	if err != nil {
		return err
	}
	v := filesView{frame: s.frame(sess, "Files", ""), Box: box, Path: dir, Trail: trail(box.ID, dir), More: more}
	for _, f := range list {
		row := fileRow{File: f, Name: path.Base(f.Path)}
		full := path.Join(dir, row.Name)
		switch f.Type {
		case sandbox.TypeDirectory:
			row.Link = fileLink(box.ID, "files", full)
		case sandbox.TypeFile, sandbox.TypeSymlink:
			row.Link = fileLink(box.ID, "file", full)
		case sandbox.TypeOther:
		}
		v.Files = append(v.Files, row)
	}
	slices.SortFunc(v.Files, func(a, b fileRow) int {
		return cmp.Or(order(a)-order(b), cmp.Compare(a.Name, b.Name))
	})
	s.show(w, r, http.StatusOK, "files", v)
	return nil
}

// order puts directories first.
func order(f fileRow) int {
	if f.Type == sandbox.TypeDirectory {
		return 0
	}
	return 1
}

// file shows the beginning of a file.
func (s *Server) file(w http.ResponseWriter, r *http.Request, sess *session) error {
	box, name, err := s.filesOf(r, sess)
	if err != nil {
		return err
	}
	f, err := s.opts.Engine.StatFile(r.Context(), sess.id.Principal, box.ID, name)
	if err != nil {
		return err
	}
	data, size, err := s.readFile(r, sess, box.ID, name, maxPreview)
	if f.Type == sandbox.TypeDirectory || f.Type == sandbox.TypeSymlink && err != nil { // perhaps it leads to a directory
		http.Redirect(w, r, fileLink(box.ID, "files", name), http.StatusSeeOther)
		return nil
	}
	if err != nil {
		return err
	}
	v := fileView{frame: s.frame(sess, path.Base(name), ""), Box: box, File: f, Trail: trail(box.ID, path.Dir(name)), Link: fileLink(box.ID, "download", name)}
	v.Cut = size > int64(len(data))
	switch text := string(data); {
	case sandbox.PictureType(data) != "" && size <= maxPicture:
		v.Picture = fileLink(box.ID, "picture", name)
	case strings.ContainsRune(text, 0) || !utf8.ValidString(trimRune(text)):
		v.Binary = true
	default:
		v.Text = lines(cmp.Or(languageOf(name), "text"), strings.ToValidUTF8(text, ""), nil)
	}
	s.show(w, r, http.StatusOK, "file", v)
	return nil
}

// trimRune removes an incomplete character from the end of a text.
func trimRune(text string) string {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if c := text[len(text)-n]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(text[len(text)-n:]) {
				return text[:len(text)-n]
			}
			break
		}
	}
	return text
}

// readFile reads the first bytes of a file, and returns the size of the whole.
func (s *Server) readFile(r *http.Request, sess *session, id, name string, most int64) (data []byte, size int64, err error) {
	f, size, err := s.opts.Engine.ReadFile(r.Context(), sess.id.Principal, id, name, 0, most)
	if err != nil {
		return nil, 0, err
	}
	data, err = io.ReadAll(io.LimitReader(f, most))
	return data, size, errors.Join(err, f.Close())
}

// download sends a file that browsers keep, and never show.
func (s *Server) download(w http.ResponseWriter, r *http.Request, sess *session) error {
	box, name, err := s.filesOf(r, sess)
	if err != nil {
		return err
	}
	f, size, err := s.opts.Engine.ReadFile(r.Context(), sess.id.Principal, box.ID, name, 0, -1)
	if err != nil {
		return err
	}
	defer f.Close()
	asDownload(w, r, path.Base(name), size)
	if n, err := io.Copy(w, f); err != nil || n != size {
		panic(http.ErrAbortHandler) // a truncated file must not look complete
	}
	return nil
}

// asDownload sends the header of an answer that browsers keep as a file. A negative
// size is not known.
func asDownload(w http.ResponseWriter, r *http.Request, name string, size int64) {
	protect(w, r)
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", cmp.Or(mime.FormatMediaType("attachment", map[string]string{"filename": name}), "attachment"))
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	w.WriteHeader(http.StatusOK)
}

// fileAsPicture sends a file that begins as a picture does.
func (s *Server) fileAsPicture(w http.ResponseWriter, r *http.Request, sess *session) error {
	box, name, err := s.filesOf(r, sess)
	if err != nil {
		return err
	}
	data, size, err := s.readFile(r, sess, box.ID, name, maxPicture)
	if err != nil {
		return err
	}
	kind := sandbox.PictureType(data[:min(len(data), headBytes)])
	if kind == "" || size > maxPicture {
		return errNoPicture
	}
	sendBytes(w, r, kind, data)
	return nil
}

// upload writes the files of a form into a directory.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, sess *session) error {
	box, dir, err := s.filesOf(r, sess)
	if err != nil {
		return err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "file: the form has none")
	}
	sent := 0
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return sandbox.Errorf(sandbox.Invalid, "file: the form ended early")
		}
		name := part.FileName() // the last part of a path
		if part.FormName() != "file" || name == "" {
			continue
		}
		if name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\\\x00") {
			return sandbox.Errorf(sandbox.Invalid, "file: %.40q is not a name", name)
		}
		if err := s.opts.Engine.WriteFile(r.Context(), sess.id.Principal, box.ID, path.Join(dir, name), part, false); err != nil {
			return err
		}
		sent++
	}
	if sent == 0 {
		return sandbox.Errorf(sandbox.Invalid, "file: choose one first")
	}
	http.Redirect(w, r, fileLink(box.ID, "files", dir), http.StatusSeeOther)
	return nil
}
