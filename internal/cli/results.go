package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/screen"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// fileTypes are the MIME types of which --results saves the first that a result
// has, with their file name extensions.
var fileTypes = []struct{ mime, extension string }{
	{"image/png", "png"}, {"image/jpeg", "jpg"}, {"image/gif", "gif"}, {"image/webp", "webp"},
	{"image/svg+xml", "svg"}, {"application/pdf", "pdf"},
	{"text/html", "html"}, {"text/markdown", "md"}, {"text/latex", "tex"},
	{"application/json", "json"}, {sandbox.MIMEText, "txt"},
}

// A resultFile is a result in the form for a file.
type resultFile struct {
	mime, extension string
	data            []byte
}

// isPlot reports whether f is a picture, in contrast to a table or a text.
func (f resultFile) isPlot() bool { return strings.HasPrefix(f.mime, "image/") }

// fileOf returns a result in the form for a file, or false if it has none. A
// picture must begin as its type does, because the sandbox named the type.
func fileOf(r sandbox.Result) (resultFile, bool) {
	for _, t := range fileTypes {
		value, ok := r.Data[t.mime]
		if !ok {
			continue
		}
		f := resultFile{t.mime, t.extension, value}
		if sandbox.IsJSON(t.mime) {
			return f, true
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			continue
		}
		f.data = []byte(text)
		if isBase64(t.mime) {
			data, err := base64.StdEncoding.DecodeString(text)
			if err != nil || sandbox.IsPicture(t.mime) && sandbox.PictureType(data) != t.mime {
				continue
			}
			f.data = data
		}
		return f, true
	}
	return resultFile{}, false
}

// isBase64 reports whether the values of a MIME type are base64.
func isBase64(mime string) bool { return sandbox.IsPicture(mime) || mime == "application/pdf" }

// A resultsDir is the directory of --results.
type resultsDir struct {
	name string
	root *os.Root
	link func(from, to string) error // makes a hard link in root
	last map[string]int              // number of the last file, by the beginning of its name
}

// openResults opens or makes the directory of --results, or returns nil for "".
func openResults(name string) (*resultsDir, error) {
	if name == "" {
		return nil, nil
	}
	err := os.MkdirAll(name, 0o755)
	if err != nil {
		return nil, usageError("--results: %w", err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, usageError("--results: %w", err)
	}
	return &resultsDir{name, root, root.Link, map[string]int{}}, nil
}

func (d *resultsDir) close() {
	if d != nil {
		d.root.Close() // it was only read, so there is nothing to lose
	}
}

// maxNumber bounds the search for a free file name.
const maxNumber = 100_000

// save writes a result to a new file, whole or not at all, and returns the file's
// path. It never changes a file that exists.
func (d *resultsDir) save(f resultFile) (path string, err error) {
	temporary := ".glovebox-" + rand.Text()
	if err := d.write(temporary, f.data); err != nil {
		return "", err
	}
	defer func() {
		if e := d.root.Remove(temporary); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	kind := map[bool]string{true: "plot", false: "result"}[f.isPlot()]
	for n := d.last[kind] + 1; n <= maxNumber; n++ {
		name := fmt.Sprintf("%s-%d.%s", kind, n, f.extension)
		err := d.claim(temporary, name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", sandbox.Errorf(sandbox.Invalid, "save result: %w", err)
		}
		d.last[kind] = n
		return filepath.Join(d.name, name), nil
	}
	return "", sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "save result: %s has %d of them", d.name, maxNumber),
		"name another directory with --results")
}

func (d *resultsDir) write(name string, data []byte) error {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "save result: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "save result: %w", errors.Join(err, d.root.Remove(name)))
	}
	return nil
}

// claim gives a file a name that no file has, else the error is fs.ErrExist.
func (d *resultsDir) claim(from, to string) error {
	err := d.link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// The file system has no hard links. The name is taken by an empty file
	// first, which the rename replaces.
	if err := d.write(to, nil); err != nil {
		return err
	}
	if err := d.root.Rename(from, to); err != nil {
		return errors.Join(err, d.root.Remove(to))
	}
	return nil
}

// showResults shows or saves the results of a run, and says what becomes of them.
func (p *program) showResults(ctx context.Context, sys *app.System, id string, dir *resultsDir) error {
	res, err := sys.Engine.Results(ctx, sandbox.Local, id)
	if err != nil {
		return err
	}
	var show screen.Show
	if fd, ok := terminal(p.Out); ok && len(res.Results) > 0 {
		show = screen.Pictures(fd, p.Getenv)
	}
	unseen := 0
	for _, r := range res.Results {
		f, ok := fileOf(r)
		if !ok {
			res.Omitted++
			continue
		}
		shown := false
		if show != nil {
			if shown, err = show(p.Out, f.mime, f.data); err != nil {
				return err
			}
		}
		if dir != nil {
			name, err := dir.save(f)
			if err != nil {
				return err
			}
			p.say("saved: %s", name)
		} else if !shown {
			unseen++
		}
	}
	switch {
	case unseen == 1:
		p.say("1 plot was drawn: save it with --results DIR")
	case unseen > 1:
		p.say("%d plots were drawn: save them with --results DIR", unseen)
	}
	if res.Omitted > 0 {
		p.say("lost: %d plots, which were too many, too large or broken", res.Omitted)
	}
	return nil
}

// A jsonResult is one MIME type of a result in the JSON of a run. Data is the
// base64 of a picture, unless a file has it.
type jsonResult struct {
	sandbox.ResultForm
	// File has the data of this type. It is set with --results.
	File string `json:"file,omitempty"`
}

// jsonResults returns results for the JSON of a run, and saves them in dir if that
// is not nil.
func jsonResults(res sandbox.Results, dir *resultsDir) ([]jsonResult, error) {
	var out []jsonResult
	for n, r := range res.Results {
		file, saved := resultFile{}, ""
		if f, ok := fileOf(r); ok && dir != nil {
			name, err := dir.save(f)
			if err != nil {
				return nil, err
			}
			file, saved = f, name
		}
		for _, mime := range r.Types() {
			j := jsonResult{ResultForm: sandbox.ResultForm{Number: n, MIME: mime, Main: r.Main, Late: r.Late}}
			var text string
			switch {
			case mime == file.mime:
				j.File = saved
			case !sandbox.IsJSON(mime) && !isBase64(mime) && json.Unmarshal(r.Data[mime], &text) == nil:
				j.Text = &text
			default:
				j.Data = r.Data[mime]
			}
			out = append(out, j)
		}
	}
	return out, nil
}

// maxNamedFiles is how many changed files a run's line names.
const maxNamedFiles = 10

// changesLine returns a line with the files that a run changed in its workspace,
// or "" if it changed none.
func changesLine(c *sandbox.Changes) string {
	if c == nil || len(c.Files) == 0 {
		return ""
	}
	marks := map[sandbox.Change]string{sandbox.FileCreated: "+", sandbox.FileModified: "~", sandbox.FileRemoved: "-"}
	line := "files:"
	named := c.Files[:min(len(c.Files), maxNamedFiles)]
	for _, f := range named {
		line += " " + marks[f.Change] + shownName(f.Path)
	}
	if more := c.Created + c.Modified + c.Removed - len(named); more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}

// shownName returns the name of a file as one word, in quotes if need be: a
// program in a sandbox chose it.
func shownName(name string) string {
	odd := func(r rune) bool { return r == ' ' || r == '"' || !strconv.IsPrint(r) }
	if strings.ContainsFunc(name, odd) {
		return strconv.Quote(name)
	}
	return name
}
