package guestapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The paths of the code interpreter. E2B has the first five; the others are
// ours:
//
//	POST   /execute                  run code: a stream of events, one JSON object a line
//	POST   /contexts                 make a context
//	GET    /contexts                 list contexts
//	DELETE /contexts/{id}            remove a context and kill its processes
//	POST   /contexts/{id}/restart    end its interpreter; the next run starts another
//	POST   /contexts/{id}/prepare    import modules, a PrepareRequest
//	POST   /contexts/{id}/interrupt  interrupt its run, an InterruptRequest
//	POST   /contexts/{id}/input      input for its run, an InputRequest
//	POST   /executions/{tag}/connect    the events of a kept run that no caller took
//	POST   /executions/{tag}/interrupt  interrupt this kept run only
//	POST   /executions/{tag}/input      input for this kept run only
const (
	PathExecute    = "/execute"
	PathContexts   = "/contexts"
	PathExecutions = "/executions"
)

// ContentTypeEvents is the media type of a stream of a run's events.
const ContentTypeEvents = "application/x-ndjson"

// DefaultGrace is how long an interrupted run has to end, if the request does
// not set the grace.
const DefaultGrace = 3 * time.Second

// A ContextRequest makes a context. E2B's request has Language and Cwd.
type ContextRequest struct {
	// Language is python, javascript, typescript, bash, sh, r or java, or a usual
	// alias; python if empty. It can also be ipython: IPython's shell for Python.
	Language string `json:"language,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
	// ID names the context and must not be in use. If it is empty, the guest
	// makes one.
	ID string `json:"id,omitempty"`
	// Env is added to the environment of the interpreter.
	Env map[string]string `json:"env,omitempty"`
	// Prepare names modules to import in advance. A module that fails is
	// skipped.
	Prepare []string `json:"prepare,omitempty"`
}

// DefaultContextID returns the name of a language's default context, for code
// that names no context.
func DefaultContextID(language string) string { return "default-" + language }

// A Context describes an interpreter, which the next run starts if it is not
// alive.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
	// Version is the version of the interpreter, PID its process. Without an
	// interpreter they are empty and 0. Busy is set while a run is under way.
	// Runs counts the runs that began.
	Version string `json:"version,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Busy    bool   `json:"busy,omitempty"`
	Runs    int    `json:"runs,omitempty"`
}

// An ExecuteRequest runs code. E2B's request has the first four fields.
type ExecuteRequest struct {
	Code string `json:"code"`
	// ContextID names the context. If it is empty, the run is in the default
	// context of Language, which is made if necessary.
	ContextID string            `json:"context_id,omitempty"`
	Language  string            `json:"language,omitempty"`
	EnvVars   map[string]string `json:"env_vars,omitempty"` // for this run only

	// Create makes the context ContextID if it does not exist, with Language,
	// Cwd, Env and Prepare as in a ContextRequest. An existing context must be
	// of that Language.
	Create  bool              `json:"create,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Prepare []string          `json:"prepare,omitempty"`
	// Stdin is set if a client answers requests for input. Otherwise they fail.
	Stdin bool `json:"stdin,omitempty"`
	// TimeoutMillis bounds the run without its wait for a turn; 0 is no limit.
	// At the timeout the run is interrupted, and killed after GraceMillis. The
	// same happens when the caller leaves.
	TimeoutMillis int64 `json:"timeout_ms,omitempty"`
	GraceMillis   int64 `json:"grace_ms,omitempty"` // DefaultGrace if 0

	// Previews asks for a preview of each picture that is not fit for a model as
	// it is. Guests of earlier versions ignore it.
	Previews bool `json:"previews,omitempty"`

	// Tag, if not empty, names the run and makes it a kept run. A kept run goes
	// on when its caller leaves, and its events wait for ConnectExecution. The
	// reply comes before the run's turn. The tag must not be in use.
	Tag string `json:"tag,omitempty"`
}

// A PrepareRequest imports modules in a context that has had no run yet.
type PrepareRequest struct {
	Modules []string `json:"modules"`
}

// An InterruptRequest interrupts the run of a context, as Control-C does. If the
// run has not ended after the grace, the guest kills the interpreter. With Kill
// there is no grace. The reply comes at once; the end of the run has the result.
type InterruptRequest struct {
	GraceMillis int64 `json:"grace_ms,omitempty"` // DefaultGrace if 0
	Kill        bool  `json:"kill,omitempty"`
}

// An InputRequest gives input to the run of a context.
type InputRequest struct {
	Text string `json:"text,omitempty"`
	EOF  bool   `json:"eof,omitempty"` // no more input follows
}

// An ExecuteType is the kind of an event of a run.
type ExecuteType string

// The kinds of events. E2B's SDKs know the first five and ignore the others.
const (
	ExecuteCount  ExecuteType = "number_of_executions"
	ExecuteStdout ExecuteType = "stdout"
	ExecuteStderr ExecuteType = "stderr"
	ExecuteResult ExecuteType = "result"
	ExecuteError  ExecuteType = "error"
	// ExecuteInput reports that the run waits for input.
	ExecuteInput ExecuteType = "input_request"
	// ExecuteLate is output of an earlier run, or of processes that it left
	// running.
	ExecuteLate ExecuteType = "late"
	// ExecuteNotice is a message for people, such as the loss of state.
	ExecuteNotice    ExecuteType = "notice"
	ExecuteKeepalive ExecuteType = "keepalive"
	// ExecuteEnd is the last event.
	ExecuteEnd ExecuteType = "end"
)

// An ExecuteEvent is one event of a run.
type ExecuteEvent struct {
	Type ExecuteType `json:"type"`
	// Text is the text of stdout, stderr, late and notice.
	Text string `json:"text,omitempty"`
	// ExecutionCount numbers the runs of an interpreter, from 1.
	ExecutionCount int `json:"execution_count,omitempty"`
	// Of late: the stream, the run if it is known, and the number of bytes that
	// were dropped before this text. A result of an earlier run has Run only.
	Stream  Stream `json:"stream,omitempty"`
	Run     int    `json:"run,omitempty"`
	Dropped int64  `json:"dropped,omitempty"`
	// Of input_request.
	Prompt   string `json:"prompt,omitempty"`
	Password bool   `json:"password,omitempty"`

	// Result is made by user code. Only the JSON syntax of its data is checked.
	Result *sandbox.Result `json:"-"`
	Error  *RunError       `json:"-"`
	End    *ExecutionEnd   `json:"end,omitempty"`
}

// resultPreviews is the key of a result's previews beside its MIME types.
const resultPreviews = "previews"

// MIMEData is the type of the columns of a pandas frame, in E2B's form.
const MIMEData = "application/vnd.glovebox.data+json"

// resultKeys are E2B's names of MIME types. Other types are their own keys.
var resultKeys = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
	"image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
	"application/json": "json", "application/javascript": "javascript", sandbox.MIMEChart: "chart", MIMEData: "data",
}

var resultMIME = func() map[string]string {
	m := make(map[string]string, len(resultKeys))
	for mime, key := range resultKeys {
		m[key] = mime
	}
	return m
}()

// A RunError is an exception that ended a run. It is [sandbox.RunError] in E2B's
// form, which always has the traceback.
type RunError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
	// Line is the failing line of the run's code, from 1, or 0 if it is not
	// known. Source is the text of that line.
	Line   int    `json:"line,omitempty"`
	Source string `json:"source,omitempty"`
}

// An ExecutionEnd says how a run ended; see [End].
type ExecutionEnd struct {
	Status EndStatus `json:"status"`
	// ExitCode is set if the code chose one, or if the interpreter exited.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal is the signal that killed the interpreter, or 0.
	Signal int `json:"signal,omitempty"`
	// StateLost is set if the interpreter is gone with all its variables.
	StateLost bool `json:"state_lost,omitempty"`
	// TimedOut, Stopped and Left are the reason of an interrupt: the timeout, an
	// InterruptRequest, or the caller's leaving. Killed is set if the run did
	// not end within the grace.
	TimedOut bool `json:"timed_out,omitempty"`
	Stopped  bool `json:"stopped,omitempty"`
	Left     bool `json:"caller_left,omitempty"`
	Killed   bool `json:"killed,omitempty"`
	// Cause describes the end in one line, if there is more to say.
	Cause string `json:"cause,omitempty"`
	// Children counts live processes that the context started.
	Children int `json:"children,omitempty"`
	// Detail is as for a process. Its usage is the run's.
	Detail EndDetail `json:"detail"`
}

// AppendTextEvent appends an event of output and a line break to dst. The text
// must be valid UTF-8. It is encoded by hand, as the output of processes is.
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

// appendString appends text, which is valid UTF-8, as a JSON string.
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

// AppendExecuteEvent appends an event and a line break to dst. Characters of HTML
// stay as they are, because a result in HTML could become six times as long.
func AppendExecuteEvent(dst []byte, e *ExecuteEvent) ([]byte, error) {
	b, err := marshalPlain(e)
	return append(dst, b...), err
}

// marshalPlain is json.Marshal without escapes for HTML, and with a line break.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// MarshalJSON puts the fields of a result or an error beside the type, as E2B
// does.
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
		if e.Result.Late {
			m["type"], m["run"] = ExecuteLate, e.Run
		}
		return marshalPlain(m)
	case e.Error != nil:
		return marshalPlain(struct {
			Type ExecuteType `json:"type"`
			*RunError
		}{ExecuteError, e.Error})
	}
	return marshalPlain(plain(e))
}

// DecodeExecuteEvent decodes one line of a run's events. It returns nil for an
// event of an unknown kind.
func DecodeExecuteEvent(line []byte) (*ExecuteEvent, error) {
	if e := decodeText(line); e != nil {
		return e, nil
	}
	if !json.Valid(line) {
		return nil, fmt.Errorf("decode event: %.40q is not valid JSON", line)
	}
	if fields, err := splitObject(line); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	} else if t := string(fields["type"]); t == `"result"` || t == `"late"` && fields["stream"] == nil {
		return decodeResult(fields)
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
	case ExecuteCount, ExecuteStdout, ExecuteStderr, ExecuteLate, ExecuteInput, ExecuteNotice, ExecuteKeepalive:
	default:
		return nil, nil
	}
	return e, nil
}

// decodeResult decodes an event with a result by its fields. It only cuts the data
// out of them.
func decodeResult(fields map[string]json.RawMessage) (*ExecuteEvent, error) {
	r := &sandbox.Result{Data: make(map[string]json.RawMessage, len(fields))}
	e := &ExecuteEvent{Type: ExecuteResult, Result: r}
	for key, value := range fields {
		mime, ok := resultMIME[key]
		var err error
		switch {
		case key == "type":
			err = json.Unmarshal(value, &e.Type)
		case key == "run":
			err = json.Unmarshal(value, &e.Run)
		case key == "is_main_result":
			err = json.Unmarshal(value, &r.Main)
		case key == resultPreviews:
			r.Previews, err = decodePreviews(value)
		case string(value) == "null":
		case ok:
			r.Data[mime] = value
		case strings.Contains(key, "/"):
			r.Data[key] = value
		}
		if err != nil {
			return nil, fmt.Errorf("decode result: %w", err)
		}
	}
	r.Late = e.Type == ExecuteLate
	return e, nil
}

// maxPreviewField bounds a preview as JSON, in bytes, with the reason and the
// names of its fields.
const maxPreviewField = sandbox.MaxPreview/3*4 + 16<<10

// decodePreviews decodes the previews of a result, with the same bound as
// fields. It does not decode a preview that is too large.
func decodePreviews(value []byte) (map[string]sandbox.Preview, error) {
	fields, err := splitObject(value)
	if err != nil {
		return nil, err
	}
	previews := make(map[string]sandbox.Preview, len(fields))
	for mime, field := range fields {
		var p sandbox.Preview
		if len(field) > maxPreviewField {
			previews[mime] = sandbox.Preview{Why: "its preview is too large"}
			continue
		}
		if err := json.Unmarshal(field, &p); err != nil {
			return nil, err
		}
		previews[mime] = p
	}
	return previews, nil
}

// decodeText decodes a line if it has exactly the form that AppendTextEvent
// writes. Otherwise it returns nil.
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

// unescape decodes the inside of a JSON string. It knows the two-byte escapes of
// appendString; for any other it returns false.
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
