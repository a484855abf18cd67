package mcpserver

import (
	"cmp"
	"context"
	"regexp"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) getRun() tool {
	type arguments struct {
		RunID  string             `json:"run_id,omitempty" jsonschema:"default: list your last runs"`
		Wait   int                `json:"wait_seconds,omitempty" jsonschema:"wait so long for the end; default 0"`
		Stream sandbox.StreamName `json:"stream,omitempty" jsonschema:"page through this one"`
		Offset *int64             `json:"offset,omitempty" jsonschema:"in bytes"`
		Limit  int64              `json:"limit,omitempty" jsonschema:"bytes; default 8192"`
		After  string             `json:"after,omitempty" jsonschema:"cursor of a result: show what follows"`
		Grep   string             `json:"grep,omitempty" jsonschema:"show only matching lines; RE2"`
	}
	return takes(tool{
		name:        "get_run",
		title:       "Look at a run",
		description: "Wait for a run, page through or search its whole output, or list runs.",
		output:      runOutput,
		untold:      true,
		main:        true,
		long:        true,
		scope:       auth.ScopeRun,
		readOnly:    true,
	}, limits{
		"wait_seconds": between(0, 600),
		"stream":       oneOf("stdout", "stderr"),
		"offset":       atLeast(0),
		"limit":        between(256, 1048576),
	}, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		if in.RunID == "" {
			if in != (arguments{}) {
				return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "run_id: the other arguments need it"), "without arguments, get_run lists your last runs")
			}
			return s.listRuns(ctx, c)
		}
		var lines *regexp.Regexp
		if in.Grep != "" {
			var err error
			if lines, err = compileSearch(in.Grep); err != nil {
				return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "grep: %w", err), "the syntax is RE2's")
			}
		}
		var at answer.Cursor
		if in.After != "" {
			var err error
			if at, err = answer.ParseCursor(in.After); err != nil {
				return nil, err
			}
			if in.Stream != "" || in.Offset != nil || lines != nil {
				return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "after: it is for both streams, and stream, offset and grep are for one"), "leave out one of the two")
			}
		}
		paged := in.Stream != "" || in.Offset != nil || lines != nil
		waits := s.patience(c, &in.Wait)
		run, err := s.wait(ctx, c, in.RunID, waits)
		if err != nil {
			return nil, err
		}
		s.grace.Claim(c.principal, run.ID)
		c.facts.ran(run)
		if in.After != "" {
			return s.showAfter(ctx, c, run, at, cmp.Or(in.Limit, defaultOutput), waits.noteOn(run))
		}
		if !paged {
			return s.show(ctx, c, run, int(in.Limit), waits.noteOn(run))
		}
		r := pager{
			engine: s.engine, searches: s.shares.Searches, principal: c.principal, runID: run.ID,
			stream: cmp.Or(in.Stream, sandbox.Stdout),
			limit:  cmp.Or(in.Limit, defaultOutput),
		}
		if in.Offset != nil {
			r.offset = *in.Offset
		}
		text, p, err := r.read(ctx, lines)
		if err != nil {
			return nil, err
		}
		var out sandbox.Output
		omitted := p.Total - (p.NextOffset - p.Offset)
		if lines != nil {
			omitted = p.Total - int64(len(text))
		}
		if p.Stream == sandbox.Stderr {
			out.Stderr, out.Omitted.StderrBytes = text, max(omitted, 0)
		} else {
			out.Stdout, out.Omitted.StdoutBytes = text, max(omitted, 0)
		}
		res := answer.NewRun(run, out, time.Now())
		res.Page, res.Cursor, res.NextStep = &p, "", "" // the page has its own offset
		return s.render(res)
	})
}

// listRuns returns the runs in progress and the last others of the caller, so that a
// model finds a run whose answer was lost.
func (s *Server) listRuns(ctx context.Context, c call) (*mcp.CallToolResult, error) {
	runs, err := s.engine.LastRuns(ctx, c.principal, maxRunsLooked)
	if err != nil {
		return nil, err
	}
	list := answer.NewRunList(runs)
	list.Rename(s.renamer.text)
	return answer.New(list, list.Text())
}

// maxRunsLooked bounds the runs among which a list looks for those in progress.
const maxRunsLooked = 100
