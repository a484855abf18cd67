package mcpserver

import (
	"context"
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

// showAfter renders a run with the output that follows a cursor, up to limit bytes.
// Each stream gets half of the limit, and stdout what stderr leaves.
func (s *Server) showAfter(ctx context.Context, c call, run sandbox.Run, at cursor, limit int64) (*mcp.CallToolResult, error) {
	r := pager{engine: s.engine, searches: s.shares.Searches, principal: c.principal, runID: run.ID}
	var out sandbox.Output
	read := func(stream sandbox.StreamName, offset *int64, limit int64) (text string, left int64, err error) {
		r.stream, r.offset, r.limit = stream, *offset, limit
		text, p, err := r.read(ctx, nil)
		*offset = p.NextOffset
		return text, max(p.Total-p.NextOffset, 0), err
	}
	var err error
	if out.Stderr, out.Omitted.StderrBytes, err = read(sandbox.Stderr, &at.stderr, limit/2); err != nil {
		return nil, err
	}
	if out.Stdout, out.Omitted.StdoutBytes, err = read(sandbox.Stdout, &at.stdout, limit-int64(len(out.Stderr))); err != nil {
		return nil, err
	}
	out.StdoutFrom, out.StderrFrom = at.stdout, at.stderr
	return newRunResult(run, out, time.Now()).render()
}
