package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Finding is the result of one check of this machine.
type Finding struct {
	Name   string
	Status string // "ok", "note", "warning" or "failed"
	Detail string
	Fix    string // "" if there is none
}

// Tone returns the class of the finding.
func (f Finding) Tone() string {
	switch f.Status {
	case "ok":
		return "good"
	case "note":
		return "quiet"
	}
	return "bad"
}

// doctorState keeps the last findings, and lets one examination go on at a time.
type doctorState struct {
	mu   sync.Mutex
	last *examination
}

// An examination is the result of all checks of this machine.
type examination struct {
	At       time.Time
	Findings []Finding
}

// Wrong returns the number of findings that need a person.
func (e *examination) Wrong() int {
	n := 0
	for _, f := range e.Findings {
		if f.Tone() == "bad" {
			n++
		}
	}
	return n
}

// A settingsView is the content of the page on clients, tokens, limits and the session.
type settingsView struct {
	frame
	Address string
	Scopes  string
	Session *session
	Tokens  []sandbox.Token
	Max     sandbox.Limits // of a sandbox
	Limits  []limitRow
	Doctor  *examination // the last one, or nil
}

// Begun returns when the person signed in.
func (v settingsView) Begun() any { return clock(v.Session.begun) }

// Ends returns when the session ends at the latest.
func (v settingsView) Ends() any {
	end := v.Session.begun.Add(sessionTTL)
	if until := v.Session.id.Expires; !until.IsZero() && until.Before(end) {
		end = until
	}
	return clock(end)
}

func (s *Server) settings(w http.ResponseWriter, r *http.Request, sess *session) error {
	var names []string
	for _, scope := range sess.id.Scopes {
		names = append(names, string(scope))
	}
	v := settingsView{
		frame: s.frame(sess, "Settings", "settings"), Address: address(r, s.opts.Secure), Scopes: strings.Join(names, ", "), Session: sess,
		Max: s.opts.MaxLimits,
	}
	var err error
	if v.Tokens, err = s.tokens(r.Context(), sess); err != nil {
		return err
	}
	if v.Limits, err = s.limitRows(r.Context(), sess.id.Principal); err != nil {
		return err
	}
	if v.Operator {
		s.examined.mu.Lock()
		v.Doctor = s.examined.last
		s.examined.mu.Unlock()
	}
	s.show(w, r, http.StatusOK, "settings", v)
	return nil
}

// tokens returns the tokens of a person, or all for the operator. Those that are valid
// come first.
func (s *Server) tokens(ctx context.Context, sess *session) ([]sandbox.Token, error) {
	list, err := s.opts.Auth.List(ctx)
	if err != nil {
		return nil, err
	}
	if !isOperator(sess) {
		list = slices.DeleteFunc(list, func(t sandbox.Token) bool { return t.Principal != sess.id.Principal })
	}
	slices.SortStableFunc(list, func(a, b sandbox.Token) int {
		if a.Revoked.IsZero() != b.Revoked.IsZero() {
			if a.Revoked.IsZero() {
				return -1
			}
			return 1
		}
		return b.Created.Compare(a.Created)
	})
	return list, nil
}

// examine checks this machine, and leads to the findings.
func (s *Server) examine(w http.ResponseWriter, r *http.Request, sess *session) error {
	if err := operatorOnly(sess); err != nil {
		return err
	}
	if s.opts.Doctor == nil {
		return sandbox.Errorf(sandbox.NotFound, "this server has no doctor")
	}
	s.examined.mu.Lock() // one examination at a time
	defer s.examined.mu.Unlock()
	s.examined.last = &examination{Findings: s.opts.Doctor(r.Context()), At: s.opts.Now()}
	http.Redirect(w, r, Path+"settings#doctor", http.StatusSeeOther)
	return nil
}
