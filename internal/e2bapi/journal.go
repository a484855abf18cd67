package e2bapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Bounds of the journal of one sandbox: its entries, the bytes of their messages and
// commands, of one message, and of a command. A longer line of output becomes several
// entries.
const (
	maxEntries   = 1000
	maxMessages  = 256 << 10
	maxMessage   = 4 << 10
	maxCommand   = 1 << 10
	maxEnvelope  = 256 << 10 // a longer message of a guest is not read for the journal
	maxOutOfLine = 64 << 10  // and so is a longer line of the code interpreter
	maxRequest   = 64 << 10  // the command of a longer request is not known
)

// The levels of entries, in ascending order.
var levels = []string{"debug", "info", "warn", "error"}

// A logEntry is one entry of a log, in E2B's format.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Message   string            `json:"message"`
	Level     string            `json:"level"`
	Fields    map[string]string `json:"fields"`
}

// A journal keeps, for each sandbox, the last entries about the programs that this
// protocol started. It is in memory, and ends with the process. It is safe for
// concurrent use.
type journal struct {
	now func() time.Time

	mu sync.Mutex
	of map[string]*entries // by sandbox ID
}

type entries struct {
	list  []logEntry
	bytes int // the sum of their sizes
}

// size returns the bytes of an entry that count for the bounds.
func (e *logEntry) size() int { return len(e.Message) + len(e.Fields["cmd"]) }

// beginOf returns the begin of a text, as UTF-8. It is a copy, because a part of a string
// keeps the whole one in memory.
func beginOf(text string, most int) string {
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), most)], "\uFFFD"))
}

func newJournal(now func() time.Time) *journal { return &journal{now: now, of: map[string]*entries{}} }

// add adds an entry to the journal of a sandbox. Without fields, it is about the
// sandbox itself.
func (j *journal) add(id, level, message string, fields map[string]string) {
	if fields == nil {
		fields = map[string]string{"logger": "sandbox"}
	}
	message = beginOf(message, maxMessage)
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.of[id]
	if of == nil {
		of = &entries{}
		j.of[id] = of
	}
	e := logEntry{j.now().UTC(), message, level, fields}
	of.list = append(of.list, e)
	of.bytes += e.size()
	for len(of.list) > maxEntries || of.bytes > maxMessages {
		of.bytes -= of.list[0].size()
		of.list[0] = logEntry{} // the array keeps it until append makes another
		of.list = of.list[1:]
	}
}

// list returns the entries of a sandbox, oldest first.
func (j *journal) list(id string) []logEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	if of := j.of[id]; of != nil {
		return slices.Clone(of.list)
	}
	return nil
}

// keep forgets all sandboxes except those.
func (j *journal) keep(ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	kept := make(map[string]*entries, len(ids))
	for _, id := range ids {
		if of := j.of[id]; of != nil {
			kept[id] = of
		}
	}
	j.of = kept
}

// A program writes what a stream of the guest says about one program to the journal.
// It is for one goroutine.
type program struct {
	j    *journal
	id   string // of the sandbox
	name string // the command, or the language
	pid  string
	part map[string][]byte // by stream: the begin of a line
	// fields are those of each event. The entries share them, because a program may
	// write many lines.
	fields map[string]map[string]string
}

func newProgram(j *journal, id, name string) *program {
	return &program{j: j, id: id, name: name, part: map[string][]byte{}, fields: map[string]map[string]string{}}
}

func (p *program) add(level, event, message string) {
	fields := p.fields[event]
	if fields == nil {
		fields = map[string]string{"logger": "process", "event_type": event, "cmd": p.name}
		if p.pid != "" {
			fields["pid"] = p.pid
		}
		p.fields[event] = fields
	}
	p.j.add(p.id, level, message, fields)
}

// output adds the lines of a stream. It keeps an unfinished line for the next call.
func (p *program) output(stream string, data []byte) {
	rest := append(p.part[stream], data...)
	// More lines would only push out each other.
	if cut := lastLines(rest, maxEntries); cut > 0 {
		rest = rest[cut:]
	}
	for {
		n := bytes.IndexByte(rest, '\n')
		switch {
		case n >= 0 && n <= maxMessage:
			p.line(stream, rest[:n])
			rest = rest[n+1:]
		case len(rest) > maxMessage:
			cut := maxMessage
			for cut > maxMessage-utf8.UTFMax && !utf8.RuneStart(rest[cut]) {
				cut--
			}
			p.line(stream, rest[:cut])
			rest = rest[cut:]
		default:
			p.part[stream] = bytes.Clone(rest)
			return
		}
	}
}

// lastLines returns where the last n lines of data begin.
func lastLines(data []byte, n int) int {
	end := len(data)
	for range n + 1 {
		if end = bytes.LastIndexByte(data[:end], '\n'); end < 0 {
			return 0
		}
	}
	return end + 1
}

func (p *program) line(stream string, line []byte) {
	level := "info"
	if stream == string(guestapi.Stderr) {
		level = "warn"
	}
	p.add(level, stream, string(bytes.TrimSuffix(line, []byte("\r"))))
}

// flush adds the unfinished lines.
func (p *program) flush() {
	for _, stream := range []string{string(guestapi.Stdout), string(guestapi.Stderr)} {
		if rest := p.part[stream]; len(rest) > 0 {
			p.line(stream, rest)
		}
		delete(p.part, stream)
	}
}

// event adds a message of a process stream.
func (p *program) event(message []byte) {
	ev, err := guestapi.DecodeEvent(message)
	if err != nil || ev == nil {
		return
	}
	switch {
	case ev.Start != nil:
		p.pid = fmt.Sprint(ev.Start.PID)
		p.add("info", "process_start", p.name)
	case ev.Data != nil: // what a terminal shows is no lines
		p.output(string(guestapi.Stdout), ev.Data.Stdout)
		p.output(string(guestapi.Stderr), ev.Data.Stderr)
	case ev.End != nil:
		p.flush()
		level, text := "info", ev.End.Status
		if ev.End.ExitCode != 0 || !ev.End.Exited {
			level = "error"
		}
		if ev.End.Error != "" {
			text += ": " + ev.End.Error
		}
		p.add(level, "process_end", text)
	}
}

// execution adds a line of the code interpreter's answer.
func (p *program) execution(line []byte) {
	var in struct{ Type, Text, Name, Value string }
	if json.Unmarshal(line, &in) != nil {
		return
	}
	switch guestapi.ExecuteType(in.Type) {
	case guestapi.ExecuteStdout:
		p.output(string(guestapi.Stdout), []byte(in.Text))
	case guestapi.ExecuteStderr:
		p.output(string(guestapi.Stderr), []byte(in.Text))
	case guestapi.ExecuteError:
		p.flush()
		p.add("error", "error", in.Name+": "+in.Value)
	}
}

// A watched is an answer of a guest that take reads along. take returns the number
// of bytes that it has used, and gets the others again, or -1 if it needs no more.
type watched struct {
	io.ReadCloser
	take func([]byte) int
	rest []byte
	end  func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if w.take != nil && n > 0 {
		w.rest = append(w.rest, p[:n]...)
		if used := w.take(w.rest); used >= 0 {
			w.rest = slices.Delete(w.rest, 0, used)
		} else {
			w.take, w.rest = nil, nil
		}
	}
	return n, err
}

func (w *watched) Close() error {
	w.end()
	return w.ReadCloser.Close()
}

// watchProcess writes the events of a process stream to the journal.
func (j *journal) watchProcess(id string, request []byte, body io.ReadCloser) io.ReadCloser {
	p := newProgram(j, id, commandOf(request))
	return &watched{ReadCloser: body, end: p.flush, take: func(data []byte) (used int) {
		for {
			left := data[used:]
			if len(left) < 5 {
				return used
			}
			n := binary.BigEndian.Uint32(left[1:5])
			if n > maxEnvelope {
				return -1
			}
			if len(left) < 5+int(n) {
				return used
			}
			if left[0] == 0 {
				p.event(left[5 : 5+n])
			}
			used += 5 + int(n)
		}
	}}
}

// commandOf returns the command in a request that starts a process.
func commandOf(request []byte) string {
	var in guestapi.StartRequest
	if len(request) < 5 || json.Unmarshal(request[5:], &in) != nil {
		return "a program"
	}
	words := append([]string{in.Process.Cmd}, in.Process.Args...)
	if len(words) == 4 && words[1] == "-l" && words[2] == "-c" {
		words = words[3:] // as the SDKs start every command
	}
	return beginOf(strings.Join(words, " "), maxCommand)
}

// watchExecution writes the output of an execution to the journal.
func (j *journal) watchExecution(id string, request []byte, body io.ReadCloser) io.ReadCloser {
	var in struct{ Language string }
	_ = json.Unmarshal(request, &in) // without a language, it is the context's
	p := newProgram(j, id, strings.TrimSpace("code "+fmt.Sprintf("%.40s", in.Language)))
	p.add("info", "execution_start", p.name)
	skips := false
	end := func() {
		p.flush()
		p.add("info", "execution_end", p.name)
	}
	return &watched{ReadCloser: body, end: sync.OnceFunc(end), take: func(data []byte) (used int) {
		for {
			n := bytes.IndexByte(data[used:], '\n')
			if n < 0 {
				if len(data)-used <= maxOutOfLine {
					return used
				}
				skips = true // a picture, for example
				return len(data)
			}
			if !skips {
				p.execution(data[used : used+n])
			}
			skips = false
			used += n + 1
		}
	}}
}

// A prefix keeps the first most bytes that are written to it. It has a lock because
// the transport may still read a request's body when the answer has come.
type prefix struct {
	most int

	mu   sync.Mutex
	kept []byte
}

func (b *prefix) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = append(b.kept, p[:min(len(p), b.most-len(b.kept))]...)
	return len(p), nil
}

func (b *prefix) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept
}
