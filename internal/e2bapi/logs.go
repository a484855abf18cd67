package e2bapi

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of an answer: its entries, the runs that are read for it, the output of each
// run, and the length of a search text.
const (
	maxLogs      = 1000
	maxLogRuns   = 100
	maxRunOutput = 16 << 10
	maxSearch    = 256
)

// A logQuery is the parameters of a request for logs.
type logQuery struct {
	cursor    int64 // in milliseconds since 1970
	hasCursor bool
	limit     int
	backward  bool
	level     int // the least, an index of levels
	search    string
}

// parseLogQuery reads the parameters. cursor is the name of the parameter with the
// time, which differs between the versions.
func parseLogQuery(v url.Values, cursor string) (*logQuery, error) {
	q := &logQuery{limit: maxLogs, search: v.Get("search")}
	number := func(name string, most int64) (n int64, ok bool, err error) {
		text := v.Get(name)
		if text == "" {
			return 0, false, nil
		}
		n, err = strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > most {
			return 0, false, sandbox.Errorf(sandbox.Invalid, "%s: %s is not a number between 0 and %d", name, short(text), most)
		}
		return n, true, nil
	}
	var err error
	if q.cursor, q.hasCursor, err = number(cursor, 1<<62); err != nil {
		return nil, err
	}
	limit, ok, err := number("limit", 1<<31-1)
	if err != nil {
		return nil, err
	}
	if ok {
		q.limit = int(min(limit, maxLogs))
	}
	switch d := v.Get("direction"); d {
	case "", "forward":
	case "backward":
		q.backward = true
	default:
		return nil, sandbox.Errorf(sandbox.Invalid, "direction: %s is neither forward nor backward", short(d))
	}
	if level := v.Get("level"); level != "" {
		if q.level = slices.Index(levels, level); q.level < 0 {
			return nil, sandbox.Errorf(sandbox.Invalid, "level: %s is none of %s", short(level), strings.Join(levels, ", "))
		}
	}
	if len(q.search) > maxSearch {
		return nil, sandbox.Errorf(sandbox.Invalid, "search: %d bytes are above %d", len(q.search), maxSearch)
	}
	return q, nil
}

// covers reports whether a time is on the side of the cursor that the query reads.
func (q *logQuery) covers(t time.Time) bool {
	at := t.UnixMilli()
	return !q.hasCursor || q.backward && at <= q.cursor || !q.backward && at >= q.cursor
}

func (q *logQuery) matches(e logEntry) bool {
	return q.covers(e.Timestamp) && slices.Index(levels, e.Level) >= q.level && strings.Contains(e.Message, q.search)
}

// logs answers the second version of the request, and oldLogs the first, which has
// neither a direction nor filters.
func (s *Server) logs(r *http.Request, p sandbox.Principal) (int, any, error) {
	list, err := s.readLogs(r, p, "cursor")
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"logs": list}, nil
}

func (s *Server) oldLogs(r *http.Request, p sandbox.Principal) (int, any, error) {
	type line struct {
		Timestamp time.Time `json:"timestamp"`
		Line      string    `json:"line"`
	}
	list, err := s.readLogs(r, p, "start")
	if err != nil {
		return 0, nil, err
	}
	lines := []line{}
	for _, e := range list {
		fields := map[string]string{}
		maps.Copy(fields, e.Fields)
		fields["level"], fields["message"] = e.Level, e.Message
		text, err := json.Marshal(fields)
		if err != nil {
			return 0, nil, err
		}
		lines = append(lines, line{e.Timestamp, string(text)})
	}
	return http.StatusOK, map[string]any{"logs": lines, "logEntries": list}, nil
}

// readLogs returns the entries of a sandbox that a request asks for: those of the
// journal, and those of its runs.
func (s *Server) readLogs(r *http.Request, p sandbox.Principal, cursor string) ([]logEntry, error) {
	q, err := parseLogQuery(r.URL.Query(), cursor)
	if err != nil {
		return nil, err
	}
	sb, err := s.get(r, p)
	if err != nil {
		return nil, err
	}
	picked := &selection{q: q}
	if err := s.runLogs(r.Context(), p, sb.ID, picked); err != nil {
		return nil, err
	}
	for _, e := range s.journal.list(sb.ID) {
		picked.add(e)
	}
	return picked.entries(), nil
}

// A selection keeps, of the entries that are added to it, those that answer a query.
// It never has more than twice the query's limit, because runs may have a million
// lines. Of entries with equal times, the one added earlier is the earlier one.
type selection struct {
	q    *logQuery
	list []logEntry
}

func (s *selection) add(e logEntry) {
	if !s.q.matches(e) {
		return
	}
	s.list = append(s.list, e)
	if len(s.list) >= 2*s.q.limit {
		s.cut()
	}
}

// cut sorts the entries by time, and drops those above the limit.
func (s *selection) cut() {
	slices.SortStableFunc(s.list, func(a, b logEntry) int { return a.Timestamp.Compare(b.Timestamp) })
	extra := max(len(s.list)-s.q.limit, 0)
	if s.q.backward {
		s.list = slices.Delete(s.list, 0, extra)
	} else {
		s.list = slices.Delete(s.list, len(s.list)-extra, len(s.list))
	}
}

// entries returns the answer, in the query's direction.
func (s *selection) entries() []logEntry {
	s.cut()
	if s.q.backward {
		slices.Reverse(s.list)
	}
	return append([]logEntry{}, s.list...)
}

// runLogs adds entries about the last runs of a sandbox: their starts and, when they
// have ended, their output and ends. The log of a run does not have the times of its
// lines, so they have the time of the end.
func (s *Server) runLogs(ctx context.Context, p sandbox.Principal, id string, to *selection) error {
	runs, err := s.opts.Engine.Runs(ctx, p, id, maxLogRuns)
	if err != nil {
		return err
	}
	for _, run := range runs {
		fields := func(event string) map[string]string {
			return map[string]string{"logger": "run", "event_type": event, "run_id": run.ID}
		}
		to.add(logEntry{run.Started.UTC(), "run " + run.ID, "info", fields("run_start")})
		ended := run.Ended.UTC()
		if run.Status != sandbox.RunFinished || !to.q.covers(ended) {
			continue
		}
		out, err := s.opts.Engine.Output(ctx, p, run.ID, maxRunOutput)
		if err != nil {
			return err
		}
		lines := func(text, level, event string) {
			shared := fields(event) // a map for each line takes hundreds of bytes
			for line := range strings.Lines(text) {
				to.add(logEntry{ended, strings.TrimRight(line, "\r\n"), level, shared})
			}
		}
		lines(out.Stdout, "info", "stdout")
		lines(out.Stderr, "warn", "stderr")
		level := "info"
		if run.Verdict.Code != sandbox.OK {
			level = "error"
		}
		text := string(run.Verdict.Code)
		if run.Verdict.Cause != "" {
			text += ": " + run.Verdict.Cause
		}
		to.add(logEntry{ended, text, level, fields("run_end")})
	}
	return nil
}
