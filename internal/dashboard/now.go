package dashboard

import (
	"context"
	"net/http"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The numbers of rows on a page.
const (
	recentRuns    = 200 // that are read to find the runs in progress
	shownRuns     = 15
	shownStopped  = 10
	sandboxRuns   = 200
	connections   = 200
	programOnLine = 80  // characters of a program on one line
	causeOnLine   = 160 // characters of the cause of a failure on one line
)

// A nowView is the content of the page of live sandboxes.
type nowView struct {
	frame
	Live    []liveRow
	Stopped []sandbox.Sandbox // the latest
	Runs    []runRow          // the latest
	Busy    int               // runs in progress
	Address string            // URL of the server, for the help of a new person
	Stream  string
}

// A liveRow is a live sandbox with what happens in it.
type liveRow struct {
	sandbox.Sandbox
	Running  []runRow
	Services []runRow
	Load     loadView
}

// A runRow is a run in a list.
type runRow struct {
	sandbox.ListedRun
	Line string // the beginning of the program
}

func newRunRow(r sandbox.ListedRun) runRow {
	line, _, cut := strings.Cut(strings.TrimSpace(r.Program), "\n")
	runes := []rune(line)
	if len(runes) > programOnLine {
		runes, cut = runes[:programOnLine], true
	}
	line = string(runes)
	if cut {
		line += " …"
	}
	switch {
	case line == "" && r.Service != nil:
		line = r.Service.Name
	case r.Language == "" && strings.Contains(r.Program, shellScript):
		line = "shell"
	}
	return runRow{r, line}
}

// shellScript is what the program of an interactive shell contains.
var shellScript = sandbox.NewShell("", sandbox.TerminalSize{}).Argv[2]

// Why returns the cause of a failure on one line, or "".
func (r runRow) Why() string {
	if r.Status != sandbox.RunFinished || tone(r.Verdict.Code) != "bad" {
		return ""
	}
	why := []rune(sentence(strings.Join(strings.Fields(r.Verdict.Cause), " ")))
	if len(why) > causeOnLine {
		return string(why[:causeOnLine]) + " …"
	}
	return string(why)
}

// Took returns how long a finished run took.
func (r runRow) Took() string {
	if r.Ended.IsZero() {
		return ""
	}
	return took(r.Ended.Sub(r.Started))
}

func (s *Server) nowView(ctx context.Context, r *http.Request, sess *session) (any, error) {
	list, err := s.opts.Engine.List(ctx, sess.id.Principal)
	if err != nil {
		return nil, err
	}
	runs, err := s.opts.Engine.LastRuns(ctx, sess.id.Principal, recentRuns)
	if err != nil {
		return nil, err
	}
	v := nowView{frame: s.frame(sess, "Now", "now"), Address: address(r, s.opts.Secure), Stream: Path + "events"}
	s.loads.want(sess.id.Principal)
	running, services := map[string][]runRow{}, map[string][]runRow{}
	for i, run := range runs {
		row := newRunRow(run)
		switch {
		case run.Status == sandbox.RunFinished:
		case run.Service != nil:
			services[run.SandboxID] = append(services[run.SandboxID], row)
		default:
			running[run.SandboxID] = append(running[run.SandboxID], row)
		}
		if i < shownRuns {
			v.Runs = append(v.Runs, row)
		}
	}
	for _, box := range list {
		if box.State != sandbox.Stopped {
			row := liveRow{Sandbox: box, Running: running[box.ID], Services: services[box.ID]}
			if len(v.Live) < loadRows {
				row.Load = s.loads.load(box)
			}
			v.Busy += len(row.Running)
			v.Live = append(v.Live, row)
		} else if len(v.Stopped) < shownStopped {
			v.Stopped = append(v.Stopped, box)
		}
	}
	return v, nil
}

// address returns the URL of the server as the browser knows it.
func address(r *http.Request, secure bool) string {
	if secure || r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (s *Server) now(w http.ResponseWriter, r *http.Request, sess *session) error {
	v, err := s.nowView(r.Context(), r, sess)
	if err == nil {
		s.show(w, r, http.StatusOK, "now", v)
	}
	return err
}

func (s *Server) nowEvents(w http.ResponseWriter, r *http.Request, sess *session) error {
	return s.follow(w, r, "now-live", pollEvery, func(ctx context.Context) (any, bool, error) {
		v, err := s.nowView(ctx, r, sess)
		return v, false, err
	})
}

// A runTable is the content of a list of runs.
type runTable struct {
	Runs  []runRow
	Box   bool // there is a column for the sandbox
	Label string
}

// Table returns the list of the latest runs.
func (v nowView) Table() runTable { return runTable{v.Runs, true, "Latest runs"} }

// Table returns the list of the sandbox's runs.
func (v sandboxView) Table() runTable { return runTable{v.Runs, false, "Runs"} }
