package mcpserver

import (
	"context"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// showAfter renders a run with the output that follows a cursor, up to limit bytes
// of the streams. Each stream gets half of the limit, and stdout what stderr leaves.
// A text stands for output that was not kept.
func (s *Server) showAfter(ctx context.Context, c call, run sandbox.Run, at answer.Cursor, limit int64, note string) (*mcp.CallToolResult, error) {
	r := pager{engine: s.engine, searches: s.shares.Searches, principal: c.principal, runID: run.ID}
	var out sandbox.Output
	read := func(stream sandbox.StreamName, offset, limit int64) (string, answer.Page, error) {
		r.stream, r.offset, r.limit = stream, offset, limit
		text, p, err := r.read(ctx, nil)
		for {
			gap, ok := errors.AsType[*sandbox.Gap](err)
			if !ok {
				return text, p, err
			}
			r.offset = gap.To
			text, p, err = r.read(ctx, nil)
			text = sandbox.NotKept(gap.To-offset) + text
		}
	}
	var stdout, stderr answer.Page
	var err error
	if out.Stderr, stderr, err = read(sandbox.Stderr, at.Stderr, limit/2); err != nil {
		return nil, err
	}
	// The text may be longer than the bytes that it shows, so it does not count.
	if out.Stdout, stdout, err = read(sandbox.Stdout, at.Stdout, limit-(stderr.NextOffset-stderr.Offset)); err != nil {
		return nil, err
	}
	out.StdoutFrom, out.StderrFrom = stdout.NextOffset, stderr.NextOffset
	out.Omitted.StdoutBytes, out.Omitted.StderrBytes = max(stdout.Total-stdout.NextOffset, 0), max(stderr.Total-stderr.NextOffset, 0)
	res := answer.NewRun(run, out, time.Now())
	if note != "" {
		res.Note(note)
	}
	return s.render(res)
}
