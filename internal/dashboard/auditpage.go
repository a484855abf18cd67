package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audit"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An AuditLog is the record of actions.
type AuditLog interface {
	// Last returns the latest records that match selects, the latest first.
	Last(ctx context.Context, n int, match func(audit.Record) bool) ([]audit.Record, error)
	// Verify checks the whole log; see [audit.Verify].
	Verify(ctx context.Context) (audit.Report, error)
}

// The bounds of the page.
const (
	shownRecords = 200
	shownHash    = 12 // digits of a hash
)

// An auditView is the content of the page of the audit log.
type auditView struct {
	frame
	Off     bool // this server keeps no log
	Records []recordRow
	Actions []string
	Only    recordFilter
	Check   *auditCheck // the last verification, or nil
}

// A recordFilter selects records. An empty field selects all.
type recordFilter struct {
	Principal, Action, Sandbox string
	Refused                    bool
}

// Filtered reports whether the page shows some records only.
func (v auditView) Filtered() bool { return v.Only != recordFilter{} }

// A recordRow is a record with its details in order.
type recordRow struct {
	audit.Record
	Details []detail
}

// A detail says more about a record.
type detail struct{ Name, Value string }

// Who returns the name of the record's principal.
func (r recordRow) Who() string { return principalName(r.Principal) }

// Good reports whether the action was done, or began.
func (r recordRow) Good() bool { return r.Outcome == audit.OK || r.Outcome == audit.Begun }

// An auditCheck is the result of a verification.
type auditCheck struct {
	At     time.Time
	Report audit.Report
	Wrong  string // where the log is not as it was written, or ""
}

// auditState keeps the last verification, and lets one go on at a time.
type auditState struct {
	mu   sync.Mutex
	last *auditCheck
}

func (s *Server) audit(w http.ResponseWriter, r *http.Request, sess *session) error {
	if err := operatorOnly(sess); err != nil {
		return err
	}
	form := r.URL.Query()
	v := auditView{
		frame: s.frame(sess, "Audit", "audit"), Off: s.opts.Audit == nil, Actions: actionNames(),
		Only: recordFilter{strings.TrimSpace(form.Get("principal")), form.Get("action"), strings.TrimSpace(form.Get("sandbox")), form.Has("refused")},
	}
	if !v.Off {
		list, err := s.opts.Audit.Last(r.Context(), shownRecords, v.Only.matches)
		var broken *audit.Broken
		if err != nil && !errors.As(err, &broken) {
			return err
		}
		for _, rec := range list {
			row := recordRow{Record: rec}
			for name, value := range rec.Detail {
				if name == "sha256" {
					value = value[:min(len(value), shownHash)] + " …"
				}
				row.Details = append(row.Details, detail{name, value})
			}
			slices.SortFunc(row.Details, func(a, b detail) int { return strings.Compare(a.Name, b.Name) })
			v.Records = append(v.Records, row)
		}
		s.checked.mu.Lock()
		v.Check = s.checked.last
		s.checked.mu.Unlock()
		if broken != nil {
			v.Check = &auditCheck{At: s.opts.Now(), Wrong: broken.Error()}
		}
	}
	s.show(w, r, http.StatusOK, "audit", v)
	return nil
}

// operatorOnly refuses people who may see their own objects only.
func operatorOnly(sess *session) error {
	if isOperator(sess) {
		return nil
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Forbidden, "your token lacks the scope admin"),
		"the operator makes a token with it: glovebox token create NAME --scope admin")
}

// actionNames returns the groups of actions, each followed by its actions.
func actionNames() []string {
	var names []string
	for _, a := range audit.Actions() {
		group, _, _ := strings.Cut(string(a), ".")
		if !slices.Contains(names, group) {
			names = append(names, group)
		}
		names = append(names, string(a))
	}
	return names
}

// matches reports whether the filter selects a record.
func (f recordFilter) matches(r audit.Record) bool {
	return (f.Principal == "" || string(r.Principal) == f.Principal || r.Principal == sandbox.TokenPrincipal(f.Principal)) &&
		(f.Action == "" || string(r.Action) == f.Action || strings.HasPrefix(string(r.Action), f.Action+".")) &&
		(f.Sandbox == "" || r.Sandbox == f.Sandbox || r.Sandbox == sandbox.CanonicalID(f.Sandbox)) &&
		(!f.Refused || r.Outcome != audit.OK && r.Outcome != audit.Begun)
}

// verifyAudit verifies the log, and leads to the page with the result.
func (s *Server) verifyAudit(w http.ResponseWriter, r *http.Request, sess *session) error {
	if err := operatorOnly(sess); err != nil {
		return err
	}
	if s.opts.Audit == nil {
		return sandbox.Errorf(sandbox.NotFound, "this server keeps no audit log")
	}
	s.checked.mu.Lock() // one verification at a time
	defer s.checked.mu.Unlock()
	report, err := s.opts.Audit.Verify(r.Context())
	check := &auditCheck{At: s.opts.Now(), Report: report}
	var broken *audit.Broken
	switch {
	case errors.As(err, &broken):
		check.Wrong = broken.Error()
	case err != nil:
		return err
	}
	s.checked.last = check
	http.Redirect(w, r, (&url.URL{Path: Path + "audit"}).String(), http.StatusSeeOther)
	return nil
}
