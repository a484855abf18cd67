package sandbox

import "encoding/json"

// DefaultContext is the context of runs that name none of their own.
const DefaultContext = "default"

// A Context is a live interpreter in a sandbox: what one run leaves in it
// (variables, functions, imports, the current directory) the next one finds.
// Contexts of different languages may have the same name.
type Context struct {
	Name     string `json:"name"`
	Language string `json:"language"`
	// Version is the interpreter's; it is empty until the next run starts one.
	Version string `json:"version,omitempty"`
	// Busy says that a run is under way, and Runs counts those that began.
	Busy bool `json:"busy,omitempty"`
	Runs int  `json:"runs,omitempty"`
}

// A RunContext is what a run has to do with its context.
type RunContext struct {
	Name     string `json:"name"`
	Language string `json:"language"`
	// Count numbers the runs of one interpreter, from 1.
	Count int `json:"execution_count,omitempty"`
	// StateLost says that the interpreter ended, with all its variables. The
	// next run starts a fresh one.
	StateLost bool `json:"state_lost,omitempty"`
	// Notice says what befell the context before this run, such as that its
	// state was lost.
	Notice string `json:"notice,omitempty"`
}

// An InputRequest is what a run waits to be told.
type InputRequest struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password,omitempty"`
}

// A Result is a value that a run showed, in one or more MIME types: of its last
// expression, or of display.
type Result struct {
	// Data has a JSON string for each type (of base64 for pictures but SVG, and
	// for PDF), or any JSON for types of JSON. It is what the program in the
	// sandbox says.
	Data map[string]json.RawMessage `json:"data"`
	// Main says that it is the value of the last expression, Late that it is an
	// earlier run's.
	Main bool `json:"main,omitempty"`
	Late bool `json:"late,omitempty"`
	// Previews are what models are shown of pictures in Data, by MIME type, in
	// place of the pictures. They are kept beside the result, not in it.
	Previews map[string]Preview `json:"-"`
	// Stdout and Stderr are how many bytes the run had written before it.
	Stdout int64 `json:"stdout,omitempty"`
	Stderr int64 `json:"stderr,omitempty"`
}

// Results are what a run showed, in order, as far as they are kept, and its
// pictures.
type Results struct {
	Results []Result
	// Omitted counts those that were too many or too large to keep.
	Omitted int
	// Error is the exception that ended the run, if one did.
	Error *RunError
	// Files are previews of pictures that the run left in its workspace, by
	// their paths there.
	Files map[string]Preview
}

// A RunError is an exception that ended a run. What it says is also at the end
// of the run's standard error.
type RunError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback,omitempty"`
	// Line is the failing line of the run's code, from 1, or 0 if it is not
	// known, and Source what it says.
	Line   int    `json:"line,omitempty"`
	Source string `json:"source,omitempty"`
}
