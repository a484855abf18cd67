package httpserver

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Usage returns what principals used.
type Usage interface {
	Usage(ctx context.Context, q usage.Query) ([]usage.Row, error)
}

const usagePath = "/api/usage"

// allPrincipals asks for the use of all principals.
const allPrincipals = "*"

const (
	// usualUsage is the time that an answer covers by default.
	usualUsage = 30 * usage.Day
	// maxUsageRows bounds the rows of an answer.
	maxUsageRows = 10_000
)

// An ownUsage is the answer with what a principal used.
type ownUsage struct {
	Principal sandbox.Principal `json:"principal"`
	Usage     []usage.Row       `json:"usage"`
	// Truncated means that there are more rows.
	Truncated bool `json:"truncated,omitempty"`
}

// serveUsage answers with what the caller's principal used. Only an operator may ask for
// another principal, or with "*" for all.
func (s *Server) serveUsage(w http.ResponseWriter, r *http.Request) {
	id, _ := auth.FromContext(r.Context())
	query := r.URL.Query()
	of := id.Principal
	if p := sandbox.Principal(query.Get("principal")); p != "" && p != of {
		if of = p; !id.Can(auth.ScopeOperate) {
			writeError(w, sandbox.Errorf(sandbox.Forbidden, "principal: the token lacks the scope operate"))
			return
		}
	}
	q, asCSV, err := usageQuery(query, time.Now())
	if err != nil {
		writeError(w, err)
		return
	}
	q.Limit = maxUsageRows + 1
	if of != allPrincipals {
		q.Principals = []sandbox.Principal{of}
	}
	rows, err := s.opts.Usage.Usage(r.Context(), q)
	if err != nil {
		s.fileError(w, "serve usage", err)
		return
	}
	more := len(rows) > maxUsageRows
	if more {
		rows = rows[:maxUsageRows]
	}
	for i := range rows {
		if rows[i].Principal == of {
			rows[i].Principal = "" // it is that of the answer
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	if !asCSV {
		if rows == nil {
			rows = []usage.Row{}
		}
		writeJSON(w, http.StatusOK, ownUsage{of, rows, more})
		return
	}
	if more {
		writeError(w, sandbox.Errorf(sandbox.Invalid, "since: there are more than %d rows; ask for a shorter time", maxUsageRows))
		return
	}
	var out bytes.Buffer
	if err := usage.WriteCSV(&out, rows); err != nil {
		s.fileError(w, "serve usage", err)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Disposition", `attachment; filename="usage.csv"`)
	w.Write(out.Bytes())
}

// usageQuery parses the query of a URL.
func usageQuery(v url.Values, now time.Time) (q usage.Query, asCSV bool, err error) {
	for name, values := range v {
		if !slices.Contains([]string{"principal", "since", "until", "by", "format"}, name) || len(values) != 1 {
			return q, false, sandbox.Errorf(sandbox.Invalid, "there is no parameter %.50q, or it is there twice; the parameters are principal, since, until, by and format", name)
		}
	}
	q.From, q.By = now.Add(-usualUsage).UTC().Truncate(usage.Day), []usage.Column{usage.ByDay}
	if text := v.Get("since"); text != "" {
		if q.From, err = usage.ParseTime(text); err != nil {
			return q, false, sandbox.Errorf(sandbox.Invalid, "since: %w", err)
		}
	}
	if text := v.Get("until"); text != "" {
		if q.To, err = usage.ParseTime(text); err != nil {
			return q, false, sandbox.Errorf(sandbox.Invalid, "until: %w", err)
		}
	}
	if text := v.Get("by"); text != "" {
		if q.By, err = usage.ParseColumns(text); err != nil {
			return q, false, err
		}
	}
	switch v.Get("format") {
	case "", "json":
	case "csv":
		asCSV = true
	default:
		return q, false, sandbox.Errorf(sandbox.Invalid, "format: must be json or csv")
	}
	return q, asCSV, nil
}
