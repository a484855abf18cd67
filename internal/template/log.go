package template

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Level is the importance of a log entry.
type Level string

// The levels, in order.
const (
	Debug Level = "debug"
	Info  Level = "info"
	Warn  Level = "warn"
	Error Level = "error"
)

// levels are all levels, from the lowest.
var levels = []Level{Debug, Info, Warn, Error}

// rank returns the place of a level in their order, or -1.
func rank(l Level) int {
	for i, known := range levels {
		if l == known {
			return i
		}
	}
	return -1
}

// An Entry is a line of a build's log.
type Entry struct {
	Time    time.Time `json:"timestamp"`
	Level   Level     `json:"level"`
	Message string    `json:"message"`
	Step    string    `json:"step,omitempty"`
}

// Bounds on a build's log.
const (
	maxEntries = 10_000
	maxLog     = 4 << 20  // bytes of the file
	maxLogs    = 64 << 20 // bytes of all files of a principal; see sweepLogs
	maxLine    = 16 << 10
)

// A buildLog is the log of a build in progress. Its Write takes output of programs.
type buildLog struct {
	now func() time.Time

	mu      sync.Mutex
	file    *os.File
	err     error // of the file
	entries []Entry
	bytes   int
	dropped int
	step    string
	line    []byte // the last line, if it has no end yet
}

func (s *Service) logFile(build string) string { return filepath.Join(s.logsDir(), build+".jsonl") }

// open makes the file of the log. It must come before the first entry.
func (l *buildLog) open(name string) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	return err
}

// in sets the step of the entries that follow.
func (l *buildLog) in(step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLine()
	l.step = step
}

// say adds an entry.
func (l *buildLog) say(level Level, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLine()
	l.add(level, fmt.Sprintf(format, args...))
}

// Write adds an entry for each line.
func (l *buildLog) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(data)
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			l.line = append(l.line, data[:min(len(data), maxLine)]...)
			if len(l.line) >= maxLine {
				l.endLine()
			}
			break
		}
		l.line = append(l.line, data[:min(end, maxLine)]...)
		l.add(Info, string(bytes.TrimRight(l.line, "\r")))
		l.line, data = l.line[:0], data[end+1:]
	}
	return n, nil
}

// endLine adds the line that has no end yet.
func (l *buildLog) endLine() {
	if len(l.line) > 0 {
		l.add(Info, string(l.line))
		l.line = l.line[:0]
	}
}

// add adds an entry, or counts it if the log is full. l.mu is held.
func (l *buildLog) add(level Level, message string) {
	message = strings.ToValidUTF8(message[:min(len(message), maxLine)], "�")
	if len(l.entries) >= maxEntries || l.bytes+len(message) > maxLog {
		l.dropped++
		return
	}
	// The file has more bytes than the message: the other fields, and escapes.
	e := l.entry(level, message)
	if l.bytes+len(e.line) > maxLog {
		l.dropped++
		return
	}
	l.write(e)
}

func (l *buildLog) append(level Level, message string) {
	l.write(l.entry(level, message))
}

// An encoded entry is a line of the file.
type encoded struct {
	Entry
	line []byte
}

func (l *buildLog) entry(level Level, message string) encoded {
	e := Entry{Time: l.now().UTC(), Level: level, Message: message, Step: l.step}
	line, err := json.Marshal(e)
	l.err = errors.Join(l.err, err)
	return encoded{e, append(line, '\n')}
}

func (l *buildLog) write(e encoded) {
	l.entries, l.bytes = append(l.entries, e.Entry), l.bytes+len(e.line)
	if l.err == nil {
		_, l.err = l.file.Write(e.line)
	}
}

// close ends the log. The last entries do not count for its bounds: the number of
// dropped lines, and the cause of a failure.
func (l *buildLog) close(failure string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLine()
	if l.dropped > 0 {
		l.append(Warn, fmt.Sprintf("%d lines were left out, as the log was full", l.dropped))
	}
	if failure != "" {
		l.append(Error, failure)
	}
	return errors.Join(l.err, l.file.Close())
}

func (l *buildLog) all() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[:len(l.entries):len(l.entries)]
}

// Logs returns the log of a principal's build, without the entries below a level.
func (s *Service) Logs(ctx context.Context, p sandbox.Principal, template, build string, least Level) ([]Entry, error) {
	if least == "" {
		least = Debug
	}
	if rank(least) < 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "level: %s is none; they are debug, info, warn and error", quote(string(least)))
	}
	b, err := s.Build(ctx, p, template, build)
	if err != nil {
		return nil, err
	}
	entries, err := s.entries(b.ID)
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, e := range entries {
		if rank(e.Level) >= rank(least) {
			list = append(list, e)
		}
	}
	return list, nil
}

func (s *Service) entries(build string) ([]Entry, error) {
	s.mu.Lock()
	l := s.live[build]
	s.mu.Unlock()
	if l != nil {
		return l.log.all(), nil
	}
	f, err := os.Open(s.logFile(build))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it has not begun
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []Entry
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16*maxLine)
	for lines.Scan() {
		var e Entry
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			break // the server died while it wrote this line
		}
		list = append(list, e)
	}
	return list, lines.Err()
}
