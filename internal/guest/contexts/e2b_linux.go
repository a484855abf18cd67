package contexts

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// e2bCwd is where the interpreters of E2B's default contexts start: the home of
// their user. The edge of that protocol names it in each request, too.
const e2bCwd = "~"

// forE2B makes the default contexts that E2B's interpreter has from the start,
// before it serves the first request of a client that knows E2B's protocol only.
// They have no interpreter until their first run. A language that the sandbox
// lacks gets none.
func (s *Server) forE2B(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !rpc.Extended(r) {
			s.addDefaults(rpc.User(r))
		}
		f(w, r)
	}
}

func (s *Server) addDefaults(user string) {
	s.defaultsTurn.Lock()
	defer s.defaultsTurn.Unlock()
	if s.hasDefaults {
		return
	}
	for _, l := range []string{language.Python, language.JavaScript} {
		c, err := s.newContext(user, &guestapi.ContextRequest{Language: l, ID: guestapi.DefaultContextID(l), Cwd: e2bCwd})
		if err != nil {
			return // a wrong user; the request itself reports it
		}
		if c.dir, err = s.directory(c); err != nil {
			c.cwd = "" // the home may be missing
			c.dir, err = s.directory(c)
		}
		if err != nil {
			continue
		}
		if s.registry.add(c) == nil {
			continue
		}
		// It was made in advance, perhaps elsewhere.
		if made, err := s.registry.find(c.id); err == nil {
			made.move(c.cwd, c.dir)
		}
	}
	s.hasDefaults = true
}

// asE2B makes a new context act as root, as E2B's interpreter always does, if the
// default user cannot enter its directory. The client knows E2B's protocol only, and
// could name root itself. A program of the box gets no context of root.
func (s *Server) asE2B(r *http.Request, c *context) {
	if rpc.Extended(r) || rpc.IsByProgram(r) || rpc.User(r) != "" {
		return
	}
	if _, err := s.directory(c); err == nil || rpc.Wire(err).Code != guestapi.CodePermissionDenied {
		return
	}
	root, err := s.accounts.Find(account.RootName)
	if err != nil {
		return // starting the interpreter reports that the user cannot enter
	}
	user := c.account
	c.account = root
	if _, err := s.directory(c); err != nil {
		c.account = user
	}
}

// directory returns the directory where the interpreter of a context would
// start, or an error if the sandbox has no such interpreter.
func (s *Server) directory(c *context) (string, error) {
	c.mu.Lock()
	cwd, env := c.cwd, c.env // replaced, never changed
	c.mu.Unlock()
	p, err := s.processes.Reserve(c.account, guestapi.ProcessConfig{Cwd: cwd, Envs: env})
	if err != nil {
		return "", err
	}
	_, err = s.processes.Locate(p, s.processes.Environment(p), nil, c.program.Commands...)
	return p.Dir(), err
}

// resultLocked returns a result in the form that the run's caller wants. The
// caller holds the interpreter's order.
func (x *run) resultLocked(r *sandbox.Result) *sandbox.Result {
	if x.e2b {
		if text, ok := r.Data["text/plain"]; ok {
			r.Data["text/plain"] = unquoted(text)
		}
	}
	return x.withPreviewsLocked(r)
}

// unquoted removes one pair of quotes from a JSON string, as E2B's server does.
func unquoted(text json.RawMessage) json.RawMessage {
	var s string
	if json.Unmarshal(text, &s) != nil || len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '\'' && s[0] != '"' {
		return text
	}
	b, err := json.Marshal(s[1 : len(s)-1])
	if err != nil {
		return text
	}
	return b
}

// endError returns the error by which a client of E2B learns that a run did not
// end well. The event end, which has the facts, is unknown to it.
func endError(program kernels.Program, end *guestapi.ExecutionEnd) *guestapi.RunError {
	e := &guestapi.RunError{Value: end.Cause}
	switch end.Status {
	case guestapi.EndOK:
		return nil
	case guestapi.EndExit:
		if end.ExitCode != nil {
			e.Value = strconv.Itoa(*end.ExitCode)
		}
		if !program.Shell { // E2B's shell gives no name
			e.Name = "SystemExit"
		}
	case guestapi.EndInterrupted:
		e.Name = "KeyboardInterrupt"
	default:
		e.Name = "ContextRestarting"
	}
	if e.Name != "" {
		e.Traceback = e.Name + ": " + e.Value
	}
	return e
}
