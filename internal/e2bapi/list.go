package e2bapi

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxPage is the largest and the default number of sandboxes in one answer.
const maxPage = 100

// A page is one answer of a list; next is the token of the next page.
type page struct {
	items any // a slice
	next  string
}

// A query is the parameters of a list request.
type query struct {
	states   []string
	metadata map[string]string
	template string
	after    time.Time // only sandboxes that started later
	ascends  bool
	limit    int
	from     *cursor
}

// A cursor is the position of the last sandbox of a page.
type cursor struct {
	started int64 // in microseconds
	id      string
}

func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", c.started, c.id))
}

func parseCursor(text string) (*cursor, error) {
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		_, err = fmt.Sscanf(string(b), "%d %s", &c.started, &c.id)
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "nextToken: %s is none of this server", short(text))
	}
	return &c, nil
}

func cursorOf(sb sandbox.Sandbox) cursor { return cursor{sb.Created.UnixMicro(), sb.ID} }

func (c cursor) compare(d cursor) int {
	return cmp.Or(cmp.Compare(c.started, d.started), strings.Compare(c.id, d.id))
}

func parseQuery(v url.Values) (*query, error) {
	q := &query{limit: maxPage, template: v.Get("template")}
	for _, list := range v["state"] {
		for state := range strings.SplitSeq(list, ",") {
			if state != stateRunning && state != statePaused {
				return nil, sandbox.Errorf(sandbox.Invalid, "state: %s is none; they are running and paused", short(state))
			}
			q.states = append(q.states, state)
		}
	}
	var err error
	if q.metadata, err = parseMetadata(v.Get("metadata")); err != nil {
		return nil, err
	}
	if text := v.Get("startedAfter"); text != "" {
		if q.after, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "startedAfter: %s is not a time", short(text))
		}
	}
	switch order := v.Get("order"); order {
	case "", "desc":
	case "asc":
		q.ascends = true
	default:
		return nil, sandbox.Errorf(sandbox.Invalid, "order: %s is neither asc nor desc", short(order))
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return nil, sandbox.Errorf(sandbox.Invalid, "limit: %s is not between 1 and %d", short(text), maxPage)
		}
		q.limit = n
	}
	if text := v.Get("nextToken"); text != "" {
		if q.from, err = parseCursor(text); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// parseMetadata decodes pairs whose names and values the SDKs have encoded twice.
func parseMetadata(text string) (map[string]string, error) {
	pairs, err := url.ParseQuery(text)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "metadata: %w", err)
	}
	decoded := func(s string) string {
		if d, err := url.PathUnescape(s); err == nil {
			return d
		}
		return s
	}
	m := map[string]string{}
	for name, values := range pairs {
		m[decoded(name)] = decoded(values[0])
	}
	return m, nil
}

func (q *query) matches(sb sandbox.Sandbox) bool {
	if sb.State != sandbox.Running && sb.State != sandbox.Hibernated {
		return false
	}
	if len(q.states) > 0 && !slices.Contains(q.states, stateOf(sb)) {
		return false
	}
	for name, value := range q.metadata {
		if got, ok := sb.Labels[name]; !ok || got != value || strings.HasPrefix(name, labelPrefix) {
			return false
		}
	}
	return (q.template == "" || templateOf(sb) == q.template || aliasOf(sb) == q.template) && (q.after.IsZero() || sb.Created.After(q.after))
}

func (s *Server) list(r *http.Request, p sandbox.Principal) (int, any, error) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	if !strings.HasPrefix(r.URL.Path, "/v2/") {
		q.states = []string{stateRunning} // this version had no other states
	}
	all, err := s.opts.Engine.List(r.Context(), p)
	if err != nil {
		return 0, nil, err
	}
	all = slices.DeleteFunc(all, func(sb sandbox.Sandbox) bool { return !q.matches(sb) })
	compare := func(a, b cursor) int {
		if q.ascends {
			return a.compare(b)
		}
		return b.compare(a)
	}
	slices.SortFunc(all, func(a, b sandbox.Sandbox) int { return compare(cursorOf(a), cursorOf(b)) })
	if q.from != nil {
		all = slices.DeleteFunc(all, func(sb sandbox.Sandbox) bool { return compare(cursorOf(sb), *q.from) <= 0 })
	}
	answer, items := page{}, []entry{}
	for i, sb := range all[:min(len(all), q.limit)] {
		items = append(items, entryOf(sb))
		if i == q.limit-1 && len(all) > q.limit {
			answer.next = cursorOf(sb).String()
		}
	}
	answer.items = items
	return http.StatusOK, answer, nil
}
