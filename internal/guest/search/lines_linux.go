package search

import (
	"bytes"
	"context"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of a search.
const (
	bufferSize  = 128 << 10 // of a file at once; the longest line that is matched as a whole
	binarySize  = 8 << 10   // bytes of a file that decide whether it is binary
	maxShown    = 240       // bytes of a line in the answer
	beforeMatch = 60        // of these, before the match in a long line
	lineCost    = 16        // bytes of the answer's room for a line beside its text
)

// Lines searches the lines of files. It is for one goroutine and one call.
type Lines struct {
	Pattern *Pattern
	Context int
	Max     int // matches that are kept

	// Found is the answer so far.
	Found sandbox.Found

	buf  []byte
	room int // bytes for texts that are left
	full bool
}

// NewLines returns a search of files.
func NewLines(p *Pattern, around, most int) *Lines {
	return &Lines{Pattern: p, Context: around, Max: most, buf: make([]byte, bufferSize), room: sandbox.MaxSearchText}
}

// A scan is the state of the search of one file.
type scan struct {
	*Lines
	path    string
	f       file
	size    int64 // of the file when its search began
	no      int   // number of the last line
	matches int
	before  []sandbox.FoundLine
	after   int // lines of context that are still to come
	shown   *sandbox.FoundFile
}

// file searches an open file up to the size that it had when it was opened, so that
// the search of a growing file ends. It returns early if ctx ends.
func (l *Lines) file(ctx context.Context, f file, size int64, path string) {
	s := &scan{Lines: l, path: path, f: f, size: size}
	binary, err := s.run(ctx)
	switch {
	case binary:
		l.Found.Binary++
		return
	case err != nil:
		l.Found.Unreadable++
		if s.no == 0 {
			return
		}
	}
	l.Found.Searched++
	if s.matches > 0 {
		l.Found.MatchedFiles++
		l.Found.Matches += s.matches
	}
	if s.shown != nil {
		l.Found.Files = append(l.Found.Files, *s.shown)
	}
}

func (s *scan) run(ctx context.Context) (binary bool, err error) {
	at := int64(0) // position of the buffer in the file
	for at < s.size && ctx.Err() == nil {
		n, err := s.f.readAt(s.buf[:min(int64(len(s.buf)), s.size-at)], at)
		if n == 0 {
			return false, err
		}
		data := s.buf[:n]
		if at == 0 && bytes.IndexByte(data[:min(n, binarySize)], 0) >= 0 {
			return true, nil
		}
		if at+int64(n) < s.size { // the last line is not whole
			end := bytes.LastIndexByte(data, '\n') + 1
			if end == 0 {
				if at, err = s.longLine(ctx, at); err != nil {
					return false, err
				}
				continue
			}
			data = data[:end]
		}
		s.lines(data)
		at += int64(len(data))
	}
	return false, nil
}

// lines searches whole lines. Only the last one may lack its end.
func (s *scan) lines(data []byte) {
	for len(data) > 0 {
		until := 1 // the end of the lines that are looked at one by one
		if literal := s.Pattern.literal; len(literal) > 0 && s.after == 0 {
			i := bytes.Index(data, literal)
			target := len(data)
			if until = target; i >= 0 {
				target = bytes.LastIndexByte(data[:i], '\n') + 1
				until = i + 1
			}
			// Skip the lines before it, except those of its context.
			from := target
			for k := 0; k < s.Context && !s.full && from > 0; k++ {
				from = bytes.LastIndexByte(data[:from-1], '\n') + 1
			}
			if from > 0 {
				s.no += bytes.Count(data[:from], []byte("\n"))
				s.before = s.before[:0]
				data, until = data[from:], until-from
			}
		}
		for done := 0; done < until && len(data) > 0; {
			line, rest, _ := bytes.Cut(data, []byte("\n"))
			s.line(line)
			done += len(data) - len(rest)
			data = rest
		}
	}
}

// line searches one line.
func (s *scan) line(line []byte) {
	s.no++
	if !s.Pattern.ends {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	if s.full {
		if s.Pattern.matches(line) {
			s.matches++
			s.Found.Omitted++
		}
		return
	}
	at := s.Pattern.find(line)
	if at >= 0 {
		s.match(excerpt(line, at))
	} else if s.Context > 0 {
		s.other(excerpt(line, 0))
	}
}

// match keeps a matching line, if there is room, with the lines before it.
func (s *scan) match(text string) {
	s.matches++
	cost := len(text) + lineCost
	if s.shown == nil {
		cost += len(s.path)
	}
	for _, b := range s.before {
		cost += len(b.Text) + lineCost
	}
	if s.Max == 0 || cost > s.room {
		s.full, s.after, s.before = true, 0, nil
		s.Found.Omitted++
		return
	}
	s.Max--
	s.room -= cost
	if s.shown == nil {
		s.shown = &sandbox.FoundFile{Path: s.path}
	}
	s.shown.Lines = append(append(s.shown.Lines, s.before...), sandbox.FoundLine{Line: s.no, Text: text, Match: true})
	s.before, s.after = s.before[:0], s.Context
}

// other keeps a line that does not match, if it is near one that does.
func (s *scan) other(text string) {
	line := sandbox.FoundLine{Line: s.no, Text: text}
	if cost := len(text) + lineCost; s.after > 0 && cost <= s.room {
		s.after--
		s.room -= cost
		s.shown.Lines = append(s.shown.Lines, line)
		return
	}
	s.after = 0
	if len(s.before) == s.Context {
		s.before = append(s.before[:0], s.before[1:]...)
	}
	s.before = append(s.before, line)
}

// longLine searches a line that does not fit into the buffer, and returns where the
// next line begins.
func (s *scan) longLine(ctx context.Context, at int64) (next int64, err error) {
	s.no++
	r := &runes{ctx: ctx, f: s.f, buf: s.buf, at: at, size: s.size, ends: s.Pattern.ends}
	loc := s.Pattern.re.FindReaderIndex(r)
	if r.err != nil {
		return 0, r.err
	}
	begin := at
	if loc != nil {
		begin += int64(loc[0])
	}
	for next = r.position(); !r.ended && ctx.Err() == nil; { // to the end of the line
		n, err := s.f.readAt(s.buf[:min(int64(len(s.buf)), s.size-next)], next)
		if err != nil {
			return 0, err
		}
		i := bytes.IndexByte(s.buf[:n], '\n')
		if i >= 0 || n == 0 {
			next += int64(i + 1)
			break
		}
		next += int64(n)
		r.ended = next >= s.size
	}
	if loc != nil && s.full {
		s.matches++
		s.Found.Omitted++
	}
	if s.full {
		return next, nil
	}
	from := max(at, begin-beforeMatch)
	text := make([]byte, maxShown)
	n, err := s.f.readAt(text[:min(maxShown, s.size-from)], from)
	if err != nil {
		return 0, err
	}
	shown, _, _ := bytes.Cut(text[:n], []byte("\n"))
	whole := "…" + valid(shown) + "…"
	if from == at {
		whole = strings.TrimPrefix(whole, "…")
	}
	if loc != nil {
		s.match(whole)
	} else if s.Context > 0 {
		s.other(whole)
	}
	return next, nil
}

// runes reads the characters of a line in a file.
type runes struct {
	ctx   context.Context // of the call; the reader lives within it
	f     file
	buf   []byte
	data  []byte // that is read and not used
	at    int64  // position after data
	size  int64
	ends  bool // a carriage return before the end belongs to the line
	ended bool // the end of the line was read
	err   error
}

// position returns where the next character is.
func (r *runes) position() int64 { return r.at - int64(len(r.data)) }

// ReadRune implements [io.RuneReader]. It ends early if the context does.
func (r *runes) ReadRune() (rune, int, error) {
	if len(r.data) < utf8.UTFMax && r.at < r.size && r.err == nil {
		if r.ctx.Err() != nil {
			return 0, 0, io.EOF
		}
		kept := copy(r.buf, r.data)
		n, err := r.f.readAt(r.buf[kept:min(int64(len(r.buf)), int64(kept)+r.size-r.at)], r.at)
		r.data, r.err = r.buf[:kept+n], err
		if r.at += int64(n); n == 0 {
			r.size = r.at
		}
	}
	if len(r.data) == 0 || r.ended {
		r.ended = true
		return 0, 0, io.EOF
	}
	end := 0
	if r.data[0] == '\n' {
		end = 1
	} else if !r.ends && len(r.data) > 1 && r.data[0] == '\r' && r.data[1] == '\n' {
		end = 2
	}
	if end > 0 {
		r.data, r.ended = r.data[end:], true
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRune(r.data)
	r.data = r.data[size:]
	return c, size, nil
}

// excerpt returns a line, or the part of a long line around a position.
func excerpt(line []byte, at int) string {
	if len(line) <= maxShown {
		return valid(line)
	}
	from := max(0, min(at-beforeMatch, len(line)-maxShown))
	to := from + maxShown
	for from > 0 && from < at && !utf8.RuneStart(line[from]) {
		from++
	}
	text := valid(line[from:to])
	if from > 0 {
		text = "…" + text
	}
	if to < len(line) {
		text += "…"
	}
	return text
}

// valid returns a text that JSON can carry. A character that was cut is left out.
func valid(text []byte) string {
	for cut := 1; cut < utf8.UTFMax && cut <= len(text); cut++ {
		if tail := text[len(text)-cut:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				text = text[:len(text)-cut]
			}
			break
		}
	}
	return strings.ToValidUTF8(string(text), "\uFFFD")
}
