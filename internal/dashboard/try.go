package dashboard

import (
	"net/http"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A tryView is the content of the page on which people run code.
type tryView struct {
	frame
	Languages []string
	Language  string
	Code      string
	Wrong     string // error of the last attempt, or ""
	Hint      string
}

// sample is the program in an empty editor.
const sample = `import platform

print("Hello from", platform.platform())
sum(range(10))
`

func (s *Server) try(w http.ResponseWriter, r *http.Request, sess *session) error {
	s.show(w, r, http.StatusOK, "try", tryView{frame: s.frame(sess, "Try it", "try"), Languages: s.opts.Languages, Code: sample})
	return nil
}

// runCode runs the code of the form in a new sandbox, and leads to its run.
func (s *Server) runCode(w http.ResponseWriter, r *http.Request, sess *session) error {
	if err := r.ParseForm(); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "code: the form cannot be read")
	}
	code := strings.ReplaceAll(r.PostFormValue("code"), "\r\n", "\n")
	v := tryView{frame: s.frame(sess, "Try it", "try"), Languages: s.opts.Languages, Language: r.PostFormValue("language"), Code: code}
	run, err := s.opts.Engine.Start(r.Context(), sess.id.Principal, sandbox.RunRequest{
		Code: code, Language: v.Language, Context: sandbox.DefaultContext, Plots: true,
	})
	if err != nil {
		p := sandbox.ProblemOf(err, nil)
		if p.Kind == sandbox.Internal {
			return err
		}
		v.Wrong, v.Hint = p.Message, p.Hint
		s.show(w, r, p.Kind.HTTPStatus(), "try", v)
		return nil
	}
	http.Redirect(w, r, runPath(run.ID), http.StatusSeeOther)
	return nil
}

// A workspacesView is the content of the page of workspaces.
type workspacesView struct {
	frame
	Workspaces []sandbox.Workspace
}

func (s *Server) workspaces(w http.ResponseWriter, r *http.Request, sess *session) error {
	list, err := s.opts.Engine.Workspaces(r.Context(), sess.id.Principal)
	if err != nil {
		return err
	}
	s.show(w, r, http.StatusOK, "workspaces", workspacesView{s.frame(sess, "Workspaces", "workspaces"), list})
	return nil
}
