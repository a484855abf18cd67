package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on the results that are kept of a run, and on the texts of an
// exception.
const (
	maxResults     = 100
	maxResultBytes = 32 << 20
	maxErrorName   = 256
	maxErrorText   = 64 << 10
)

// resultsSuffix ends the name of the file of a run's results, where the files
// of output have a stream and a number.
const resultsSuffix = "results"

func (f logFiles) resultsName() string { return f.sandbox + "/" + f.run + "." + resultsSuffix }

// A resultLog keeps the results of a run, one line of JSON each, in a file
// beside the output. Another process can read the file.
type resultLog struct {
	files logFiles
	room  *logRoom

	mu      sync.Mutex
	count   int
	bytes   int64
	failure *sandbox.RunError // the exception that is kept, or nil
}

// A resultLine is one line of the file.
type resultLine struct {
	Result  *sandbox.Result   `json:"result,omitempty"`
	Error   *sandbox.RunError `json:"error,omitempty"`
	Omitted bool              `json:"omitted,omitempty"`

	// Previews belong to Result. They are beside it so that other readers of
	// results do not get them.
	Previews map[string]sandbox.Preview `json:"previews,omitempty"`
	// File is the path of a picture in the workspace, and Preview its preview.
	File    string           `json:"file,omitempty"`
	Preview *sandbox.Preview `json:"preview,omitempty"`
}

// reopenResultLog continues a file that another process began.
func reopenResultLog(files logFiles) (*resultLog, error) {
	l := &resultLog{files: files}
	err := files.eachResult(func(line resultLine, n int) {
		l.count++
		l.bytes += int64(n)
		if l.failure == nil {
			l.failure = line.Error
		}
	})
	return l, err
}

// encode returns the text of a line, with its line break. A character of HTML
// stays one byte: the bounds on an exception count bytes of its texts.
func (line resultLine) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); err != nil {
		return nil, fmt.Errorf("write results: %w", err)
	}
	return b.Bytes(), nil
}

// fits takes the room for a line, and reports whether there is any. l.mu is
// held.
func (l *resultLog) fits(text []byte) bool {
	n := int64(len(text))
	return l.bytes+n <= maxResultBytes && l.room.take(n)
}

// add keeps a result. If there is no room for it, add only counts it.
func (l *resultLog) add(r sandbox.Result) error {
	text, err := resultLine{Result: &r, Previews: r.Previews}.encode()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(r.Previews) > 0 && l.bytes+int64(len(text)) > maxResultBytes { // then without previews
		if text, err = (resultLine{Result: &r}).encode(); err != nil {
			return err
		}
	}
	if l.count >= maxResults || !l.fits(text) {
		if text, err = (resultLine{Omitted: true}).encode(); err != nil {
			return err
		}
		if l.count >= 100*maxResults {
			return nil // a larger count is of no use
		}
	}
	return l.write(text)
}

// addFile keeps the preview of a picture in the workspace, if there is room.
func (l *resultLog) addFile(name string, p sandbox.Preview) error {
	text, err := resultLine{File: name, Preview: &p}.encode()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fits(text) {
		return nil
	}
	return l.write(text)
}

// fail keeps the exception that ended the run. It keeps only the first one,
// because a guest may tell of any number. If there is no room for it, fail keeps
// its name and the first words, which the record of the run has room for.
func (l *resultLog) fail(e sandbox.RunError) error {
	text, err := resultLine{Error: &e}.encode()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return nil
	}
	if !l.fits(text) {
		e = sandbox.RunError{Name: e.Name, Value: cut(e.Value, maxErrorName), Line: e.Line}
		if text, err = (resultLine{Error: &e}).encode(); err != nil {
			return err
		}
	}
	l.failure = &e
	return l.write(text)
}

// write appends an encoded line. l.mu is held.
func (l *resultLog) write(text []byte) error {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	f, err := l.files.open(l.files.resultsName(), flags)
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	l.count++
	l.bytes += int64(len(text))
	return nil
}

func (l *resultLog) kept() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// eachResult calls do with every line of a run's results, and with its length
// in bytes.
func (f logFiles) eachResult(do func(line resultLine, n int)) error {
	file, err := f.root.Open(f.resultsName())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // an incomplete line, of a process that was killed
		}
		if err != nil {
			return err
		}
		var line resultLine
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("read results: %w", err)
		}
		do(line, len(text))
	}
}

// results reads the kept results of a run.
func (f logFiles) results() (sandbox.Results, error) {
	var out sandbox.Results
	err := f.eachResult(func(line resultLine, _ int) {
		switch {
		case line.Result != nil:
			line.Result.Previews = line.Previews
			out.Results = append(out.Results, *line.Result)
		case line.Error != nil:
			out.Error = line.Error
		case line.Omitted:
			out.Omitted++
		case line.Preview != nil:
			if out.Files == nil {
				out.Files = make(map[string]sandbox.Preview)
			}
			out.Files[line.File] = *line.Preview
		}
	})
	return out, err
}

// Results returns the results that a run in a context has shown so far, and the
// exception that ended it, if there was one. For any run it returns the
// previews of pictures that the run left in its workspace.
func (e *Engine) Results(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Results, error) {
	const op = "read results"
	v, err := e.findRun(ctx, p, runID)
	if err != nil {
		return sandbox.Results{}, sandbox.Wrap(err, op, "")
	}
	out, err := v.files().results()
	return out, sandbox.Wrap(err, op, runID)
}

// cleanResult returns the guest's result without the invalid parts: the guest
// is not trusted.
func cleanResult(data map[string]json.RawMessage) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(data))
	for mime, value := range data {
		var text string
		if validMIME(mime) && (isJSONType(mime) || json.Unmarshal(value, &text) == nil) {
			out[mime] = value
		}
	}
	return out
}

// isJSONType reports whether the values of a MIME type are JSON, as opposed to
// text or base64.
func isJSONType(mime string) bool {
	return mime == "application/json" || strings.HasSuffix(mime, "+json")
}

// validMIME reports whether a text is a MIME type without parameters.
func validMIME(mime string) bool {
	kind, sub, ok := strings.Cut(mime, "/")
	return ok && kind != "" && sub != "" && len(mime) <= 128 && !strings.ContainsFunc(mime, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$&^_.+-/", r)
	})
}

// cleanError returns the guest's exception with its texts shortened.
func cleanError(e *guestapi.RunError) sandbox.RunError {
	return sandbox.RunError{
		Name:      cut(e.Name, maxErrorName),
		Value:     cut(e.Value, maxErrorText),
		Traceback: cut(e.Traceback, 2*maxErrorText),
		Line:      max(e.Line, 0),
		Source:    cut(e.Source, maxErrorText),
	}
}

// cut shortens s to n bytes without splitting a character, and marks the cut.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
