package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A cursor is a position in both streams of a run's output, in bytes. Everything
// before it was shown.
type cursor struct{ stdout, stderr int64 }

// String returns the cursor for a result. [parseCursor] reads it.
func (c cursor) String() string { return fmt.Sprintf("%d,%d", c.stdout, c.stderr) }

// parseCursor reads the argument after.
func parseCursor(text string) (cursor, error) {
	first, second, ok := strings.Cut(text, ",")
	stdout, err := strconv.ParseUint(first, 10, 63)
	stderr, stderrErr := strconv.ParseUint(second, 10, 63)
	if !ok || err != nil || stderrErr != nil {
		return cursor{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "after: %s is not a cursor", show(text)),
			"give the cursor of a result of this run, as it is")
	}
	return cursor{int64(stdout), int64(stderr)}, nil
}

// goOn sets the cursor and the next step of a result that does not have all output.
func (r *runResult) goOn(o sandbox.Output) {
	running, more := r.Status == sandbox.RunRunning, r.Omitted != sandbox.Omitted{}
	if !running && !more {
		return
	}
	r.Cursor = cursor{o.StdoutFrom, o.StderrFrom}.String()
	if running {
		r.NextStep = fmt.Sprintf("The run goes on. get_run with its run_id, wait_seconds and after=%q waits for it and shows what follows; stop_run ends it.", r.Cursor)
	} else {
		r.NextStep = fmt.Sprintf("get_run with its run_id and after=%q goes on where the output was cut, and with grep searches all of it.", r.Cursor)
	}
}

// showAfter renders a run with the output that follows a cursor, up to limit bytes
// of the streams. Each stream gets half of the limit, and stdout what stderr leaves.
// A text stands for output that was not kept.
func (s *Server) showAfter(ctx context.Context, c call, run sandbox.Run, at cursor, limit int64) (*mcp.CallToolResult, error) {
	r := pager{engine: s.engine, searches: s.shares.Searches, principal: c.principal, runID: run.ID}
	var out sandbox.Output
	read := func(stream sandbox.StreamName, offset, limit int64) (string, page, error) {
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
	var stdout, stderr page
	var err error
	if out.Stderr, stderr, err = read(sandbox.Stderr, at.stderr, limit/2); err != nil {
		return nil, err
	}
	// The text may be longer than the bytes that it shows, so it does not count.
	if out.Stdout, stdout, err = read(sandbox.Stdout, at.stdout, limit-(stderr.NextOffset-stderr.Offset)); err != nil {
		return nil, err
	}
	out.StdoutFrom, out.StderrFrom = stdout.NextOffset, stderr.NextOffset
	out.Omitted.StdoutBytes, out.Omitted.StderrBytes = max(stdout.Total-stdout.NextOffset, 0), max(stderr.Total-stderr.NextOffset, 0)
	return newRunResult(run, out, time.Now()).render()
}
