// Package service has the rules of services that depend on nothing but time and
// text: the form of a request, the restart policy with its back-off, and the search
// for a line of output. Its values have no goroutines and no locks; the caller owns
// each. Packages engine/request and engine/run import it.
package service

import (
	"bytes"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ReadyTime is how long a service has to become ready, unless its request says
// otherwise.
const ReadyTime = time.Minute

// Bounds of a request.
const (
	maxName    = 64
	maxPattern = 1024
	// maxInstructions bounds the compiled pattern.
	maxInstructions = 2000
	maxCommand      = 16 << 10

	minReadyTime = time.Second
	maxReadyTime = time.Hour
)

// Check checks a request for a service, and fills in its defaults. The errors are of
// kind Invalid.
func Check(s *sandbox.ServiceRequest) error {
	if s.Name == "" {
		s.Name = "service"
	}
	if len(s.Name) > maxName || !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, unicode.IsControl) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "name: is not a name of a service"),
			"use up to %d bytes without control characters", maxName)
	}
	switch s.Restart {
	case "":
		s.Restart = sandbox.RestartNever
	case sandbox.RestartNever, sandbox.RestartOnFailure, sandbox.RestartAlways:
	default:
		return sandbox.Errorf(sandbox.Invalid, "restart: %.40q is none of never, on-failure and always", s.Restart)
	}
	if s.Wake != sandbox.WakeNever && s.Wake != sandbox.WakeRequest {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "wake: %.40q is not request", s.Wake),
			"leave it out for a service that goes on while nothing uses it")
	}
	if s.Ready == nil {
		return nil
	}
	return checkReady(s.Ready)
}

func checkReady(r *sandbox.ReadyCheck) error {
	given := 0
	for _, is := range []bool{r.Port != 0, r.Output != "", r.Command != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "ready: there must be exactly one of port, output and command, and here are %d", given),
			"leave out ready for a service that is ready at once")
	}
	if r.Port < 0 || r.Port > 65535 {
		return sandbox.Errorf(sandbox.Invalid, "ready.port: %d is not between 1 and 65535", r.Port)
	}
	if len(r.Output) > maxPattern || len(r.Command) > maxCommand {
		return sandbox.Errorf(sandbox.Invalid, "ready: output has more than %d bytes, or command more than %d", maxPattern, maxCommand)
	}
	if strings.ContainsRune(r.Command, 0) || !utf8.ValidString(r.Command) {
		return sandbox.Errorf(sandbox.Invalid, "ready.command: is not a text")
	}
	if err := checkPattern(r.Output); err != nil {
		return err
	}
	if r.Timeout == 0 {
		r.Timeout = ReadyTime
	}
	if r.Timeout < minReadyTime || r.Timeout > maxReadyTime {
		return sandbox.Errorf(sandbox.Invalid, "timeout_seconds of ready: %v is not between %v and %v", r.Timeout, minReadyTime, maxReadyTime)
	}
	return nil
}

// checkPattern refuses a pattern that is none, or whose search takes too long: its
// time is the product of the bytes and the instructions of the compiled pattern.
func checkPattern(pattern string) error {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "ready.output: %w", err), "write a regular expression of RE2, as in Go")
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil || len(program.Inst) > maxInstructions {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "ready.output: the expression is too large"), "leave out counted repetitions such as {1000}")
	}
	return nil
}

// Again reports whether a program is started again after its end.
func Again(p sandbox.RestartPolicy, failed bool) bool {
	return p == sandbox.RestartAlways || p == sandbox.RestartOnFailure && failed
}

// The waits between the end of a program and its next start. A program that ran for
// healthy begins at the shortest one again.
const (
	shortestWait = time.Second
	longestWait  = time.Minute
	healthy      = time.Minute
)

// A Backoff has the waits between the starts of a program. The zero Backoff is ready.
type Backoff struct{ next time.Duration }

// Wait returns how long to wait before the next start of a program that ran for a
// time.
func (b *Backoff) Wait(ran time.Duration) time.Duration {
	if ran >= healthy || b.next == 0 {
		b.next = shortestWait
	}
	wait := b.next
	b.next = min(2*b.next, longestWait)
	return wait
}

const (
	// maxLine bounds the part of a line of output that is searched, in bytes.
	maxLine = 64 << 10
	// maxUnended bounds the lines that are searched before their end, in bytes: each
	// byte that comes is a search of the whole line.
	maxUnended = 1 << 10
)

// Lines looks for a line of output that matches a pattern. Use one for each stream.
type Lines struct {
	pattern *regexp.Regexp
	line    []byte // the beginning of the present line, at most maxLine bytes
}

// NewLines returns Lines for a pattern that [Check] admitted.
func NewLines(pattern string) (*Lines, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "ready.output: %w", err)
	}
	return &Lines{pattern: re}, nil
}

// Match reports whether a line matches, now that data came. A short line without an
// end counts too: a program may wait after it.
func (l *Lines) Match(data []byte) bool {
	for len(data) > 0 {
		part, rest, whole := bytes.Cut(data, []byte("\n"))
		l.line = append(l.line, part[:min(len(part), maxLine-len(l.line))]...)
		if (whole || len(rest) == 0 && len(l.line) <= maxUnended) && l.pattern.Match(bytes.TrimSuffix(l.line, []byte("\r"))) {
			return true
		}
		if whole {
			l.line = l.line[:0]
		}
		data = rest
	}
	return false
}
