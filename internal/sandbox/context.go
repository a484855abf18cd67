package sandbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// DefaultContext is the context of a run in a context that names none.
const DefaultContext = "default"

// A Context is a live interpreter in a sandbox. It keeps variables, functions,
// imports and the current directory from one run to the next. Contexts of
// different languages may have the same name.
type Context struct {
	Name     string `json:"name"`
	Language string `json:"language"`
	// Version is the interpreter's version. It is empty while no interpreter
	// runs.
	Version string `json:"version,omitempty"`
	// Busy is true while a run is under way. Runs counts the runs that began.
	Busy bool `json:"busy,omitempty"`
	Runs int  `json:"runs,omitempty"`
}

// A RunContext describes the context of a run, as far as it concerns that run.
type RunContext struct {
	Name     string `json:"name"`
	Language string `json:"language"`
	// Count numbers the runs of one interpreter, from 1.
	Count int `json:"execution_count,omitempty"`
	// StateLost is true if the interpreter ended, with all its variables. The
	// next run starts a new interpreter.
	StateLost bool `json:"state_lost,omitempty"`
	// Notice says what happened to the context before this run, for example that
	// its state was lost.
	Notice string `json:"notice,omitempty"`
}

// An InputRequest is a run's request for a line of input.
type InputRequest struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password,omitempty"`
}

// A Result is a value that a run displayed, in one or more MIME types. It is the
// value of the last expression, or an argument of display.
type Result struct {
	// Data maps each MIME type to a JSON value. JSON types hold any JSON, and
	// other types hold a JSON string. The string is base64 for PDF and for
	// pictures other than SVG. The data comes from the sandbox and is untrusted.
	Data map[string]json.RawMessage `json:"data"`
	// Main is true for the value of the last expression. Late is true for a
	// result of an earlier run.
	Main bool `json:"main,omitempty"`
	Late bool `json:"late,omitempty"`
	// Previews replace the pictures in Data when a model reads the result, by
	// MIME type. They are stored beside the result, not in it.
	Previews map[string]Preview `json:"-"`
	// Stdout and Stderr count the bytes that the run had written before the
	// result.
	Stdout int64 `json:"stdout,omitempty"`
	Stderr int64 `json:"stderr,omitempty"`
}

// Base64 returns the value of a MIME type whose values are base64. It reports false
// if the result has none, or if the value is not text.
func (r Result) Base64(mime string) (Base64, bool) {
	value := r.Data[mime]
	if end := len(value) - 1; end > 0 && value[0] == '"' && value[end] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return Base64(value[1:end]), true
	}
	var text Base64
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return "", false
	}
	return text, true
}

// Types returns the MIME types of r: plain text first, then pictures, then charts.
func (r Result) Types() []string {
	rank := func(mime string) int {
		switch {
		case mime == MIMEText:
			return 0
		case IsPicture(mime):
			return 1
		case mime == MIMEChart:
			return 2
		}
		return 3
	}
	return slices.SortedFunc(maps.Keys(r.Data), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}

// A ResultForm is one MIME type of a result, as callers get it. One of Text, Data
// and URI is set. If Text and URI are set, Text is only the beginning.
type ResultForm struct {
	// Number counts the results of a run from 0.
	Number int             `json:"number"`
	MIME   string          `json:"mime"`
	Text   *string         `json:"text,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	// URI names a resource with the data.
	URI  string `json:"uri,omitempty"`
	Main bool   `json:"main,omitempty"`
	Late bool   `json:"late,omitempty"`
}

// Results are the results and pictures of a run that were kept, in order.
type Results struct {
	Results []Result
	// Omitted counts the results that were too many or too large to keep.
	Omitted int
	// Error is the exception that ended the run, if one did.
	Error *RunError
	// Files are previews of pictures that the run left in its workspace, by their
	// paths there.
	Files map[string]Preview
}

// A RunError is an exception that ended a run. Its text is also at the end of the
// run's standard error.
type RunError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback,omitempty"`
	// Line is the failing line of the run's code, from 1, or 0 if it is not
	// known. Source is the text of that line.
	Line   int    `json:"line,omitempty"`
	Source string `json:"source,omitempty"`
}

// MissesState reports whether the program used a variable or a file that does not
// exist. In a new sandbox, an earlier sandbox may have it.
func (e RunError) MissesState() bool {
	switch e.Name {
	case "NameError", "ReferenceError", "FileNotFoundError":
		return true
	}
	return strings.HasPrefix(e.Value, "ENOENT") // Node's errors of files have the name Error
}

// MissesFile reports whether output has a common program's message about a file that
// does not exist.
func MissesFile(output string) bool {
	return strings.Contains(output, "No such file or directory") || strings.Contains(output, "ENOENT")
}
