// Package results puts the results of runs into files, and into the JSON of a run.
// Only package cli imports it.
//
// A [File] is a result in the form for a file. A [Dir] is the directory of
// --results, open from [Open] to [Dir.Close]. It writes new files only, and nothing
// outside of the directory: the sandbox chose the data.
package results

import (
	"encoding/json"
	"strings"

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

// A File is a result in the form for a file.
type File struct {
	// MIME is the type of the data, and Extension its file name extension.
	MIME, Extension string
	Data            []byte
}

// isPlot reports whether f is a picture, in contrast to a table or a text.
func (f File) isPlot() bool { return strings.HasPrefix(f.MIME, "image/") }

// FileOf returns a result in the form for a file, or false if it has none. A
// picture must begin as its type does, because the sandbox named the type.
func FileOf(r sandbox.Result) (File, bool) {
	for _, t := range fileTypes {
		value, ok := r.Data[t.mime]
		if !ok {
			continue
		}
		f := File{t.mime, t.extension, value}
		switch {
		case sandbox.IsJSON(t.mime):
		case isBase64(t.mime):
			text, ok := r.Base64(t.mime)
			if !ok || sandbox.IsPicture(t.mime) && text.PictureType() != t.mime {
				continue
			}
			data, err := text.Decode()
			if err != nil {
				continue
			}
			f.Data = data
		default:
			var text string
			if json.Unmarshal(value, &text) != nil {
				continue
			}
			f.Data = []byte(text)
		}
		return f, true
	}
	return File{}, false
}

// SixelOf returns the sixels of a result that is a picture, or nil. They are not
// checked: the sandbox made them.
func SixelOf(r sandbox.Result) []byte {
	data, err := r.Previews[sandbox.MIMESixel].Data.Decode()
	if err != nil {
		return nil
	}
	return data
}

// isBase64 reports whether the values of a MIME type are base64.
func isBase64(mime string) bool { return sandbox.IsPicture(mime) || mime == "application/pdf" }

// A Form is one MIME type of a result in the JSON of a run. Data is the
// base64 of a picture, unless a file has it.
type Form struct {
	sandbox.ResultForm
	// File has the data of this type. It is set with --results.
	File string `json:"file,omitempty"`
}

// Forms returns results for the JSON of a run, and saves them in dir if that
// is not nil.
func Forms(res sandbox.Results, dir *Dir) ([]Form, error) {
	var out []Form
	for n, r := range res.Results {
		file, saved := File{}, ""
		if dir != nil {
			if f, ok := FileOf(r); ok {
				name, err := dir.Save(f)
				if err != nil {
					return nil, err
				}
				file, saved = f, name
			}
		}
		for _, mime := range r.Types() {
			j := Form{ResultForm: sandbox.ResultForm{Number: n, MIME: mime, Main: r.Main, Late: r.Late}}
			var text string
			switch {
			case mime == file.MIME:
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
