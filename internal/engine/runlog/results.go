package runlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on the results that are kept of a run, and on the texts of an
// exception.
const (
	MaxResults     = 100
	maxResultBytes = 32 << 20
	MaxErrorName   = 256
	MaxErrorText   = 64 << 10
)

// Results keeps the results of a run, one line of JSON each, in a file
// beside the output. Another process can read the file.
type Results struct {
	files Files
	room  *Room

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

// NewResults returns the results of a run that begins. They take their bytes
// from room.
func NewResults(files Files, room *Room) *Results { return &Results{files: files, room: room} }

// Failure returns the exception that is kept, or nil.
func (l *Results) Failure() *sandbox.RunError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// ReopenResults continues a file that another process began.
func ReopenResults(files Files, room *Room) (*Results, error) {
	l := NewResults(files, room)
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

// fitsLocked takes the room for a line, and reports whether there is any. l.mu is
// held.
func (l *Results) fitsLocked(text []byte) bool {
	n := int64(len(text))
	return l.bytes+n <= maxResultBytes && l.room.Take(n)
}

// Add keeps a result. If there is no room for it, Add only counts it.
func (l *Results) Add(r sandbox.Result) error {
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
	if l.count >= MaxResults || !l.fitsLocked(text) {
		return l.omitLocked()
	}
	return l.writeLocked(text)
}

// Omit counts a result that is not kept.
func (l *Results) Omit() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.omitLocked()
}

// omitLocked is Omit. l.mu is held.
func (l *Results) omitLocked() error {
	if l.count >= 100*MaxResults {
		return nil // a larger count is of no use
	}
	text, err := resultLine{Omitted: true}.encode()
	if err != nil {
		return err
	}
	return l.writeLocked(text)
}

// AddFile keeps the preview of a picture in the workspace, if there is room.
func (l *Results) AddFile(name string, p sandbox.Preview) error {
	text, err := resultLine{File: name, Preview: &p}.encode()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fitsLocked(text) {
		return nil
	}
	return l.writeLocked(text)
}

// Fail keeps the exception that ended the run. It keeps only the first one,
// because a guest may tell of any number. If there is no room for it, Fail keeps
// its name and the first words, which the record of the run has room for.
func (l *Results) Fail(e sandbox.RunError) error {
	text, err := resultLine{Error: &e}.encode()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return nil
	}
	if !l.fitsLocked(text) {
		e = sandbox.RunError{Name: e.Name, Value: excerpt.Cut(e.Value, MaxErrorName), Line: e.Line}
		if text, err = (resultLine{Error: &e}).encode(); err != nil {
			return err
		}
	}
	l.failure = &e
	return l.writeLocked(text)
}

// writeLocked appends an encoded line. l.mu is held.
func (l *Results) writeLocked(text []byte) error {
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

// Kept returns how many bytes are kept.
func (l *Results) Kept() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// eachResult calls do with every line of a run's results, and with its length
// in bytes.
func (f Files) eachResult(do func(line resultLine, n int)) error {
	file, err := f.root.Open(f.resultsName())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	// The decoder has one buffer for all lines: a line with a picture is long.
	lines := json.NewDecoder(file)
	for {
		begin := lines.InputOffset()
		var line resultLine
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // perhaps after an incomplete line, of a process that was killed
		}
		if err != nil {
			return fmt.Errorf("read results: %w", err)
		}
		do(line, int(lines.InputOffset()-begin))
	}
}

// Results reads the kept results of a run.
func (f Files) Results() (sandbox.Results, error) {
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
