package e2bapi

import (
	"cmp"
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

func (q *logQuery) matches(e logEntry) bool {
	at := e.Timestamp.UnixMilli()
	if q.hasCursor && (q.backward && at > q.cursor || !q.backward && at < q.cursor) {
		return false
	}
	return slices.Index(levels, e.Level) >= q.level && strings.Contains(e.Message, q.search)
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
	all, err := s.runLogs(r.Context(), p, sb.ID)
	if err != nil {
		return nil, err
	}
	all = append(all, s.journal.list(sb.ID)...)
	all = slices.DeleteFunc(all, func(e logEntry) bool { return !q.matches(e) })
	slices.SortStableFunc(all, func(a, b logEntry) int { return cmp.Compare(a.Timestamp.UnixNano(), b.Timestamp.UnixNano()) })
	if q.backward {
		slices.Reverse(all)
	}
	return append([]logEntry{}, all[:min(len(all), q.limit)]...), nil
}

// runLogs returns entries about the last runs of a sandbox: their starts and, when
// they have ended, their output and ends. The log of a run does not have the times of
// its lines, so they have the time of the end.
func (s *Server) runLogs(ctx context.Context, p sandbox.Principal, id string) ([]logEntry, error) {
	runs, err := s.opts.Engine.Runs(ctx, p, id, maxLogRuns)
	if err != nil {
		return nil, err
	}
	var list []logEntry
	for _, run := range runs {
		add := func(at time.Time, level, event, message string) {
			list = append(list, logEntry{at.UTC(), message, level, map[string]string{"logger": "run", "event_type": event, "run_id": run.ID}})
		}
		add(run.Started, "info", "run_start", "run "+run.ID)
		if run.Status != sandbox.RunFinished {
			continue
		}
		out, err := s.opts.Engine.Output(ctx, p, run.ID, maxRunOutput)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out.Stdout) {
			add(run.Ended, "info", "stdout", strings.TrimRight(line, "\r\n"))
		}
		for line := range strings.Lines(out.Stderr) {
			add(run.Ended, "warn", "stderr", strings.TrimRight(line, "\r\n"))
		}
		level := "info"
		if run.Verdict.Code != sandbox.OK {
			level = "error"
		}
		text := string(run.Verdict.Code)
		if run.Verdict.Cause != "" {
			text += ": " + run.Verdict.Cause
		}
		add(run.Ended, level, "run_end", text)
	}
	return list, nil
}
