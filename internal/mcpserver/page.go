package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/ansi"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A pager reads a part of one stream of a run's output: the text that a reader of a
// terminal would see. Offsets count the bytes of the output itself.
type pager struct {
	engine    Engine
	searches  *fair.Pool // bounds the searches in progress
	principal sandbox.Principal
	runID     string
	stream    sandbox.StreamName
	offset    int64
	limit     int64
}

// maxSearchProgram bounds a compiled pattern, in instructions. The time to match
// a byte is proportional to it.
const maxSearchProgram = 1000

// compileSearch compiles a search pattern. It refuses a pattern that is too
// complex.
func compileSearch(pattern string) (*regexp.Regexp, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > maxSearchProgram {
		return nil, fmt.Errorf("the pattern is too complex (%d steps, and %d are the most): use fewer or smaller repetitions", len(program.Inst), maxSearchProgram)
	}
	return regexp.Compile(pattern)
}

// Bounds of a search: the bytes of one read, the bytes of a line that are
// matched, and the bytes that one call searches.
const (
	searchChunk = 256 << 10
	searchLine  = 64 << 10
	searchMost  = 64 << 20
)

// read returns the page, or the page's matching lines.
func (r pager) read(ctx context.Context, lines *regexp.Regexp) (string, answer.Page, error) {
	if lines != nil {
		return r.search(ctx, lines)
	}
	data, total, err := r.engine.ReadOutput(ctx, r.principal, r.runID, r.stream, r.offset, r.limit)
	if err != nil {
		return "", answer.Page{}, err
	}
	end := r.offset + int64(len(data))
	if end < total {
		if whole, ok := wholeRunes(data, false); ok && len(whole) > 0 {
			data = whole
		}
		data = data[:ansi.Whole(data)]
		end = r.offset + int64(len(data))
	}
	p := answer.Page{Stream: r.stream, Offset: r.offset, NextOffset: min(end, max(total, r.offset)), Total: total}
	return strings.ToValidUTF8(string(ansi.Text(data)), "\uFFFD"), p, nil
}

// search reads from the offset on until it has limit bytes of matching lines. It
// stops at the current end of the stream, or after searchMost bytes. Each line
// that it returns begins with its offset.
func (r pager) search(ctx context.Context, lines *regexp.Regexp) (string, answer.Page, error) {
	place, err := ledger.Acquire(ctx, r.searches, fair.Request{Principal: r.principal, Units: 1})
	if err != nil {
		return "", answer.Page{}, err
	}
	defer place.Release()
	var (
		out     strings.Builder
		buf     []byte // read but not searched; begins at offset at
		at      = r.offset
		matches int
		p       = answer.Page{Stream: r.stream, Offset: r.offset, Matches: &matches}
	)
	// take searches one line. It returns false if the line matches but no longer
	// fits into the limit.
	take := func(line []byte) bool {
		shown := bytes.TrimSuffix(ansi.Text(line[:min(len(line), searchLine)]), []byte("\n"))
		if lines.Match(shown) {
			text := fmt.Sprintf("%d: %s\n", at, strings.ToValidUTF8(string(shown), "\uFFFD"))
			if out.Len() > 0 && int64(out.Len()+len(text)) > r.limit {
				return false
			}
			if int64(len(text)) > r.limit {
				text = answer.FirstRunes(text, int(r.limit)-1) + "\n"
			}
			out.WriteString(text)
			matches++
		}
		at += int64(len(line))
		return true
	}
	for {
		data, total, err := r.engine.ReadOutput(ctx, r.principal, r.runID, r.stream, at+int64(len(buf)), searchChunk)
		if gap, ok := errors.AsType[*sandbox.Gap](err); ok {
			// The gap ends the line before it, and the rest of a line follows.
			if len(buf) > 0 && !take(buf) {
				p.NextOffset = at
				return out.String(), p, nil
			}
			at, buf = gap.To, nil
			continue
		}
		if err != nil {
			return "", answer.Page{}, err
		}
		p.Total = total
		buf = append(buf, data...)
		for {
			i := bytes.IndexByte(buf, '\n')
			if i < 0 {
				break
			}
			if ctx.Err() != nil {
				return "", answer.Page{}, context.Cause(ctx)
			}
			if !take(buf[:i+1]) {
				p.NextOffset = at
				return out.String(), p, nil
			}
			buf = buf[i+1:]
		}
		// Search an incomplete line if it is the last, or longer than searchLine.
		end := len(data) == 0 || at+int64(len(buf)) >= total
		if len(buf) > 0 && (end || len(buf) > searchLine) {
			if !take(buf) {
				end = true
			}
			buf = nil
		}
		if end || at-r.offset >= searchMost {
			p.NextOffset = min(at, max(total, r.offset))
			return out.String(), p, nil
		}
	}
}
