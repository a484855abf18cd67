package guestapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The paths of the code interpreter, which are E2B's but for the last five,
// which are ours:
//
//	POST   /execute                  run code: a stream of events, one JSON object a line
//	POST   /contexts                 make a context
//	GET    /contexts                 list them
//	DELETE /contexts/{id}            remove one, with all that it started
//	POST   /contexts/{id}/restart    end its interpreter; the next run starts another
//	POST   /contexts/{id}/interrupt  interrupt its run, an InterruptRequest
//	POST   /contexts/{id}/input      input for its run, an InputRequest
//	POST   /executions/{tag}/connect    the events of a kept run that no caller took
//	POST   /executions/{tag}/interrupt  interrupt that run, and no other
//	POST   /executions/{tag}/input      input for that run, and no other
const (
	PathExecute    = "/execute"
	PathContexts   = "/contexts"
	PathExecutions = "/executions"
)

// ContentTypeEvents is the media type of a stream of events.
const ContentTypeEvents = "application/x-ndjson"

// DefaultGrace is how long an interrupted run has to end by itself, if the
// request does not say.
const DefaultGrace = 3 * time.Second

// A ContextRequest makes a context. E2B's has Language and Cwd.
type ContextRequest struct {
	// Language is python, javascript, typescript, bash or sh, or a usual
	// alias; python if empty.
	Language string `json:"language,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
	// ID names the context; it must not be in use. If empty, one is made up.
	ID string `json:"id,omitempty"`
	// Env is the environment of the interpreter beyond the usual.
	Env map[string]string `json:"env,omitempty"`
	// Prepare names modules to import ahead. One that fails is left out.
	Prepare []string `json:"prepare,omitempty"`
}

// DefaultContextID is the name of the context of a language in which code runs
// that names none.
func DefaultContextID(language string) string { return "default-" + language }

// A Context is a live interpreter, or one that the next run starts.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
	// Version is that of the interpreter, PID its process; without one they
	// are empty and 0. Busy says that a run is under way, and Runs counts those
	// that began.
	Version string `json:"version,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Busy    bool   `json:"busy,omitempty"`
	Runs    int    `json:"runs,omitempty"`
}

// An ExecuteRequest runs code. E2B's has the first four fields.
type ExecuteRequest struct {
	Code string `json:"code"`
	// ContextID names the context; if empty, the default one of Language is
	// taken, and made if it is not there.
	ContextID string            `json:"context_id,omitempty"`
	Language  string            `json:"language,omitempty"`
	EnvVars   map[string]string `json:"env_vars,omitempty"` // for this run only

	// Create makes the context ContextID with Language and Cwd if it is not
	// there, with Env and Prepare as for a ContextRequest. One that is there
	// must be of that Language.
	Create  bool              `json:"create,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Prepare []string          `json:"prepare,omitempty"`
	// Stdin says that somebody answers requests for input; else they fail.
	Stdin bool `json:"stdin,omitempty"`
	// TimeoutMillis, if not 0, bounds the run, not its wait for a turn: then it
	// is interrupted, and after GraceMillis killed. So is a run whose caller
	// leaves.
	TimeoutMillis int64 `json:"timeout_ms,omitempty"`
	GraceMillis   int64 `json:"grace_ms,omitempty"` // DefaultGrace if 0

	// Previews asks for a preview of each picture that is not fit for a model
	// as it is. A guest that does not know of it makes none.
	Previews bool `json:"previews,omitempty"`

	// Tag, if not empty, names the run, which is then kept: it goes on when its
	// caller leaves, its events wait for ConnectExecution, and the reply comes
	// before its turn. Tags of runs that are known must differ.
	Tag string `json:"tag,omitempty"`
}

// A PrepareRequest imports modules in a context that has had no run yet.
type PrepareRequest struct {
	Modules []string `json:"modules"`
}

// An InterruptRequest interrupts the run of a context as Control-C would, and
// kills the context if the run has not ended after the grace. With Kill there
// is no grace. The reply comes at once; the run's end says what happened.
type InterruptRequest struct {
	GraceMillis int64 `json:"grace_ms,omitempty"` // DefaultGrace if 0
	Kill        bool  `json:"kill,omitempty"`
}

// An InputRequest gives input to the run of a context.
type InputRequest struct {
	Text string `json:"text,omitempty"`
	EOF  bool   `json:"eof,omitempty"` // nothing follows
}

// An ExecuteType is the kind of an event of a run.
type ExecuteType string

// The kinds of events. E2B's SDKs know the first five and pass over others.
const (
	ExecuteCount  ExecuteType = "number_of_executions"
	ExecuteStdout ExecuteType = "stdout"
	ExecuteStderr ExecuteType = "stderr"
	ExecuteResult ExecuteType = "result"
	ExecuteError  ExecuteType = "error"
	// ExecuteInput says that the run waits for input.
	ExecuteInput ExecuteType = "input_request"
	// ExecuteLate is output of an earlier run, or of what it left behind.
	ExecuteLate ExecuteType = "late"
	// ExecuteNotice is a sentence for people, such as that the state was lost.
	ExecuteNotice    ExecuteType = "notice"
	ExecuteKeepalive ExecuteType = "keepalive"
	// ExecuteEnd is the last event.
	ExecuteEnd ExecuteType = "end"
)

// An ExecuteEvent is one thing that a run did.
type ExecuteEvent struct {
	Type ExecuteType `json:"type"`
	// Text is that of stdout, stderr, late and notice.
	Text string `json:"text,omitempty"`
	// ExecutionCount numbers the runs of an interpreter, from 1.
	ExecutionCount int `json:"execution_count,omitempty"`
	// Of late: the stream, the run if it is known, and how many bytes were
	// dropped before this.
	Stream  Stream `json:"stream,omitempty"`
	Run     int    `json:"run,omitempty"`
	Dropped int64  `json:"dropped,omitempty"`
	// Of input_request.
	Prompt   string `json:"prompt,omitempty"`
	Password bool   `json:"password,omitempty"`

	Result *Result       `json:"-"`
	Error  *RunError     `json:"-"`
	End    *ExecutionEnd `json:"end,omitempty"`
}

// A Result is a value in one or more MIME types: a JSON string (of base64 for
// images other than SVG, and for PDF), or for JSON types any value. It is what
// user code says, and not more checked than that each value is JSON.
type Result struct {
	Data map[string]json.RawMessage
	// Main is set for the value of the last expression.
	Main bool
	// Late is the run that it is from, if that is not this one.
	Late int
	// Previews are those of pictures in Data, by MIME type, if they were asked
	// for. A picture that has none is fit as it is.
	Previews map[string]Preview
}

// A Preview is what a model is shown of a picture: Data, which is a PNG or JPEG
// of at most [sandbox.MaxPreview] bytes, or else Why there is none.
type Preview struct {
	Data []byte `json:"data,omitempty"`
	Why  string `json:"why,omitempty"`
}

// resultPreviews is the key of a result's previews beside its MIME types.
const resultPreviews = "previews"

// MIMEChart is a figure of matplotlib as data, in E2B's form; MIMEData the
// columns of a pandas frame.
const (
	MIMEChart = "application/vnd.glovebox.chart+json"
	MIMEData  = "application/vnd.glovebox.data+json"
)

// resultKeys are E2B's names of MIME types. Others stand for themselves.
var resultKeys = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
	"image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
	"application/json": "json", "application/javascript": "javascript", MIMEChart: "chart", MIMEData: "data",
}

var resultMIME = func() map[string]string {
	m := make(map[string]string, len(resultKeys))
	for mime, key := range resultKeys {
		m[key] = mime
	}
	return m
}()

// A RunError is an exception that ended a run.
type RunError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
	// Line is the failing line of the run's code, from 1, and Source what it
	// says; 0 if it is not known.
	Line   int    `json:"line,omitempty"`
	Source string `json:"source,omitempty"`
}

// The statuses of an ExecutionEnd.
const (
	EndOK          = "ok"
	EndError       = "error"       // an exception
	EndExit        = "exit"        // a code that is not 0
	EndInterrupted = "interrupted" // and the state was kept
	EndDied        = "died"        // the interpreter ended, or was killed
)

// An ExecutionEnd says how a run ended.
type ExecutionEnd struct {
	Status string `json:"status"`
	// ExitCode is set if the code chose one, or the interpreter exited.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal killed the interpreter, if it is not 0.
	Signal int `json:"signal,omitempty"`
	// StateLost says that the interpreter is gone with all its variables.
	StateLost bool `json:"state_lost,omitempty"`
	// TimedOut, Stopped and Left say why a run was interrupted: its time was
	// up, an InterruptRequest, its caller left. Killed says that it did not end
	// in the grace.
	TimedOut bool `json:"timed_out,omitempty"`
	Stopped  bool `json:"stopped,omitempty"`
	Left     bool `json:"caller_left,omitempty"`
	Killed   bool `json:"killed,omitempty"`
	// Cause is one line on how it ended, if there is more to say.
	Cause string `json:"cause,omitempty"`
	// Children counts processes that the context left running.
	Children int `json:"children,omitempty"`
	// Detail is as for a process, with what the run used.
	Detail EndDetail `json:"detail"`
}

// AppendTextEvent appends an event of output with valid UTF-8, and a line
// break, to dst. It is written by hand as data of processes is.
func AppendTextEvent(dst []byte, kind ExecuteType, text []byte, at time.Time) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","text":`...)
	dst = appendString(dst, text)
	dst = append(dst, `,"timestamp":"`...)
	dst = at.UTC().AppendFormat(dst, time.RFC3339Nano)
	return append(dst, "\"}\n"...)
}

const hexDigits = "0123456789abcdef"

// appendString appends text as a JSON string. The text is valid UTF-8.
func appendString(dst, text []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		switch c {
		case '\n':
			dst = append(dst, `\n`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '"', '\\':
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}

// MarshalJSON puts a result and an error beside the type, as E2B has them.
func (e ExecuteEvent) MarshalJSON() ([]byte, error) {
	type plain ExecuteEvent
	switch {
	case e.Result != nil:
		m := make(map[string]any, len(e.Result.Data)+4)
		for mime, value := range e.Result.Data {
			key, ok := resultKeys[mime]
			if !ok {
				key = mime
			}
			m[key] = value
		}
		m["type"], m["is_main_result"] = ExecuteResult, e.Result.Main
		if len(e.Result.Previews) > 0 {
			m[resultPreviews] = e.Result.Previews
		}
		if e.Result.Late != 0 {
			m["type"], m["run"] = ExecuteLate, e.Result.Late
		}
		return json.Marshal(m)
	case e.Error != nil:
		return json.Marshal(struct {
			Type ExecuteType `json:"type"`
			*RunError
		}{ExecuteError, e.Error})
	}
	return json.Marshal(plain(e))
}

// DecodeExecuteEvent decodes one line of the events of a run. It returns nil
// for an event of a kind that is not known here.
func DecodeExecuteEvent(line []byte) (*ExecuteEvent, error) {
	if e := decodeText(line); e != nil {
		return e, nil
	}
	var kind struct {
		Type   ExecuteType `json:"type"`
		Stream Stream      `json:"stream"`
		Run    int         `json:"run"`
	}
	if err := json.Unmarshal(line, &kind); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	if kind.Type == ExecuteResult || kind.Type == ExecuteLate && kind.Stream == "" {
		r, err := decodeResult(line)
		if err != nil {
			return nil, err
		}
		r.Late = kind.Run
		return &ExecuteEvent{Type: kind.Type, Result: r}, nil
	}
	e := new(ExecuteEvent)
	if err := json.Unmarshal(line, e); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	switch e.Type {
	case ExecuteError:
		e.Error = new(RunError)
		if err := json.Unmarshal(line, e.Error); err != nil {
			return nil, fmt.Errorf("decode error: %w", err)
		}
	case ExecuteEnd:
		if e.End == nil {
			return nil, errors.New("decode event: an end without its facts")
		}
		e.End.Cause = cleanText(e.End.Cause)
	case ExecuteCount, ExecuteStdout, ExecuteStderr, ExecuteLate, ExecuteInput, ExecuteNotice, ExecuteKeepalive:
	default:
		return nil, nil
	}
	return e, nil
}

func decodeResult(line []byte) (_ *Result, err error) {
	var m resultFields
	if err = json.Unmarshal(line, &m); err != nil {
		return nil, fmt.Errorf("decode result: %w", err)
	}
	r := &Result{Data: make(map[string]json.RawMessage, len(m))}
	for key, value := range m {
		mime, ok := resultMIME[key]
		switch {
		case key == "is_main_result":
			if err := json.Unmarshal(value, &r.Main); err != nil {
				return nil, fmt.Errorf("decode result: %w", err)
			}
		case key == resultPreviews:
			if r.Previews, err = decodePreviews(value); err != nil {
				return nil, fmt.Errorf("decode result: %w", err)
			}
		case string(value) == "null":
		case ok:
			r.Data[mime] = value
		case strings.Contains(key, "/"):
			r.Data[key] = value
		}
	}
	return r, nil
}

// decodePreviews decodes the previews of a result, which are bounded as its
// fields are.
func decodePreviews(value []byte) (map[string]Preview, error) {
	var fields resultFields
	if err := json.Unmarshal(value, &fields); err != nil {
		return nil, err
	}
	previews := make(map[string]Preview, len(fields))
	for mime, field := range fields {
		var p Preview
		if err := json.Unmarshal(field, &p); err != nil {
			return nil, err
		}
		previews[mime] = p
	}
	return previews, nil
}

// decodeText decodes a line if it has the very form that AppendTextEvent
// writes, and returns nil if not.
func decodeText(line []byte) *ExecuteEvent {
	const prefix, middle, suffix = `{"type":"`, `","text":"`, `"}`
	rest, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte(prefix))
	if !ok {
		return nil
	}
	kind, rest, ok := bytes.Cut(rest, []byte(middle))
	if !ok || (ExecuteType(kind) != ExecuteStdout && ExecuteType(kind) != ExecuteStderr) {
		return nil
	}
	rest, ok = bytes.CutSuffix(rest, []byte(suffix))
	if !ok {
		return nil
	}
	i := bytes.LastIndex(rest, []byte(`","timestamp":"`))
	if i < 0 {
		return nil
	}
	text, ok := unescape(rest[:i])
	if !ok {
		return nil
	}
	return &ExecuteEvent{Type: ExecuteType(kind), Text: text}
}

// unescape decodes the inside of a JSON string that holds only the escapes that
// appendString writes.
func unescape(b []byte) (string, bool) {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\\')
		part := b
		if i >= 0 {
			part = b[:i]
		}
		if bytes.IndexByte(part, '"') >= 0 {
			return "", false
		}
		out = append(out, part...)
		if i < 0 {
			break
		}
		if i+1 >= len(b) {
			return "", false
		}
		switch c := b[i+1]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case '"', '\\':
			out = append(out, c)
		default:
			return "", false
		}
		b = b[i+2:]
	}
	return string(out), utf8.Valid(out)
}
