package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/dashboard/socket"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// terminalType is the value of TERM in terminals of the dashboard.
const terminalType = "xterm-256color"

// stopTime bounds the end of a shell whose page is gone.
const stopTime = 10 * time.Second

// hasTerminal reports whether this build has the program of the terminal. make terminal
// puts it beside the other static files.
func hasTerminal() bool {
	_, ok := openStatic("xterm.mjs")
	return ok
}

// A terminalView is the content of the page with a terminal.
type terminalView struct {
	frame
	Box      sandbox.Sandbox
	Socket   string
	Terminal bool // this build has one
	// Without a terminal, Shell is the run of a shell whose log is shown, or nil.
	Shell *runView
}

func terminalPath(id string) string { return sandboxPath(id) + "/terminal" }

func (s *Server) terminal(w http.ResponseWriter, r *http.Request, sess *session) error {
	box, err := s.liveBox(r, sess)
	if err != nil {
		return err
	}
	v := terminalView{frame: s.frame(sess, "Terminal", ""), Box: box, Socket: terminalPath(box.ID) + "/socket", Terminal: s.opts.Terminal()}
	if id := r.URL.Query().Get("run"); !v.Terminal && id != "" {
		run, err := s.findRun(r.Context(), sess, id)
		if err != nil {
			return err
		}
		shell, err := s.runView(r.Context(), sess, run)
		if err != nil {
			return err
		}
		v.Shell = &shell
	}
	s.show(w, r, http.StatusOK, "terminal", v)
	return nil
}

// liveBox returns the sandbox of a request, which has not stopped.
func (s *Server) liveBox(r *http.Request, sess *session) (sandbox.Sandbox, error) {
	box, err := s.opts.Engine.Get(r.Context(), sess.id.Principal, sandbox.CanonicalID(r.PathValue("id")))
	if err == nil && box.State == sandbox.Stopped {
		err = sandbox.Errorf(sandbox.Conflict, "the sandbox has stopped")
	}
	return box, err
}

// startShell starts a shell for a page without a terminal, and leads to its log.
func (s *Server) startShell(w http.ResponseWriter, r *http.Request, sess *session) error {
	box, err := s.liveBox(r, sess)
	if err != nil {
		return err
	}
	req := sandbox.NewShell("dumb", sandbox.TerminalSize{Cols: 80, Rows: 24})
	req.SandboxID, req.Timeout = box.ID, s.opts.ShellTime
	run, err := s.opts.Engine.Start(r.Context(), sess.id.Principal, req)
	if err != nil {
		return err
	}
	http.Redirect(w, r, terminalPath(box.ID)+"?run="+run.ID, http.StatusSeeOther)
	return nil
}

// sendLine sends a line to the input of a run, and leads back to the log of its shell.
func (s *Server) sendLine(w http.ResponseWriter, r *http.Request, sess *session) error {
	id := r.PathValue("id")
	run, err := s.await(r.Context(), sess, id)
	if err != nil {
		return err
	}
	line := strings.TrimRight(r.PostFormValue("line"), "\r\n") + "\n"
	if err := s.opts.Engine.SendInput(r.Context(), sess.id.Principal, id, []byte(line), false); err != nil {
		return err
	}
	http.Redirect(w, r, terminalPath(run.SandboxID)+"?run="+id, http.StatusSeeOther)
	return nil
}

// terminalSocket connects a page to a shell, which ends with the connection. Binary
// messages are the shell's input and output. A text of the page is a size, and one of
// the server says how the shell ended.
func (s *Server) terminalSocket(w http.ResponseWriter, r *http.Request, sess *session) error {
	box, err := s.liveBox(r, sess)
	if err != nil {
		return err
	}
	size, err := sizeOf(r.URL.Query().Get("cols"), r.URL.Query().Get("rows"))
	if err != nil {
		return err
	}
	c, err := socket.Accept(w, r)
	if err != nil {
		return err
	}
	defer c.Close() // the shell is what counts
	p := sess.id.Principal
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // the server ends, or the session

	req := sandbox.NewShell(terminalType, size)
	req.SandboxID, req.Timeout = box.ID, s.opts.ShellTime
	run, err := s.opts.Engine.Start(ctx, p, req)
	if err != nil {
		sayEnd(c, sandbox.ProblemOf(err, nil).Message)
		return nil
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), stopTime)
		defer cancel()
		if _, err := s.opts.Engine.StopRun(stop, p, run.ID); err != nil && !errors.Is(err, sandbox.NotFound) {
			s.opts.Log.Warn("stop the shell of a terminal", "run", run.ID, "error", err)
		}
	}()
	go func() {
		defer cancel()
		s.feed(ctx, c, p, run.ID)
	}()
	err = s.opts.Engine.Follow(ctx, p, run.ID, func(_ sandbox.StreamName, data []byte) error {
		return c.Write(socket.Binary, data)
	})
	if err != nil {
		return nil // the page is gone
	}
	if run, err = s.opts.Engine.Wait(ctx, p, run.ID); err == nil {
		text := "The shell has ended."
		if run.Verdict.Cause != "" {
			text += " " + run.Verdict.Cause
		}
		sayEnd(c, text)
	}
	return nil
}

// feed passes the messages of a page on to a shell, until the page closes.
func (s *Server) feed(ctx context.Context, c *socket.Conn, p sandbox.Principal, run string) {
	for {
		kind, message, err := c.Read()
		if err != nil {
			return
		}
		if kind == socket.Binary {
			if err := s.opts.Engine.SendInput(ctx, p, run, message, false); err != nil {
				return // the shell has ended
			}
			continue
		}
		var to struct{ Cols, Rows int }
		if json.Unmarshal(message, &to) != nil {
			return
		}
		size, err := sizeOf(strconv.Itoa(to.Cols), strconv.Itoa(to.Rows))
		if err != nil {
			return
		}
		// The next change tries again, and a shell with a wrong width is usable.
		_ = s.opts.Engine.Resize(ctx, p, run, size)
	}
}

// sayEnd tells the page how its shell ended. The page may be gone.
func sayEnd(c *socket.Conn, text string) {
	if b, err := json.Marshal(map[string]string{"ended": text}); err == nil {
		_ = c.Write(socket.Text, b)
	}
}

// sizeOf returns the size of a terminal.
func sizeOf(cols, rows string) (sandbox.TerminalSize, error) {
	c, err1 := strconv.ParseUint(cols, 10, 15)
	r, err2 := strconv.ParseUint(rows, 10, 15)
	if err1 != nil || err2 != nil || c == 0 || r == 0 {
		return sandbox.TerminalSize{}, sandbox.Errorf(sandbox.Invalid, "cols, rows: the terminal has no size")
	}
	return sandbox.TerminalSize{Cols: uint16(c), Rows: uint16(r)}, nil
}
