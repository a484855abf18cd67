package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A sandboxView is the content of a sandbox's page.
type sandboxView struct {
	frame
	sandbox.Sandbox
	Runs        []runRow // the latest first
	Services    []runRow
	Controls    []control
	Connections []sandbox.Connection // the latest first
	Refused     int                  // of Connections
	Load        loadView
	Timeline    timeline
	Previews    bool // ports can be shown
	Snapshots   snapshotsView
	Stream      string
	// Wrong says why an action was refused, or is "". WrongHint says what to do, and
	// Copies are those that were made nevertheless.
	Wrong, WrongHint string
	Copies           []sandbox.Sandbox
}

// Live reports whether the sandbox can be stopped.
func (v sandboxView) Live() bool { return v.State != sandbox.Stopped }

// MaxForks returns how many copies one request can ask for.
func (v sandboxView) MaxForks() int { return sandbox.MaxForks }

// Online reports whether the sandbox has a network.
func (v sandboxView) Online() bool {
	return v.Network != "" && v.Network != sandbox.NetworkNone
}

// Forever reports whether the sandbox has no end of its own.
func (v sandboxView) Forever() bool { return v.Expires.Sub(v.Created) >= sandbox.Forever }

// A control is a line of the receipt with its meaning in plain words.
type control struct {
	sandbox.Control
	Title, Meaning string
}

// InForce returns the value for people.
func (c control) InForce() string {
	if c.Name == sandbox.ControlCapabilities && strings.Trim(c.Value, "0") == "" && c.Value != "" {
		return "none"
	}
	return c.Value
}

// meanings says what each control is for.
var meanings = map[sandbox.ControlName][2]string{
	sandbox.ControlBoundary:     {"Boundary", "What separates the code from this machine"},
	sandbox.ControlCPU:          {"Processor", "How many processors the programs may use at once"},
	sandbox.ControlMemory:       {"Memory", "The memory of all programs and of files in memory; beyond it, a program ends"},
	sandbox.ControlProcesses:    {"Processes", "How many processes and threads there may be at once"},
	sandbox.ControlDisk:         {"Disk", "The space for files that the programs write"},
	sandbox.ControlNetwork:      {"Network", "The hosts that the programs may reach"},
	sandbox.ControlUser:         {"User", "The user on this machine as which the sandbox runs"},
	sandbox.ControlCapabilities: {"Privileges", "The rights of an administrator that the sandbox keeps"},
	sandbox.ControlSeccomp:      {"System calls", "The calls to this machine's kernel that are possible"},
	sandbox.ControlRootFS:       {"System files", "How the programs see the files of the system"},
}

func controlsOf(r sandbox.Receipt) []control {
	var list []control
	for _, c := range r {
		m := meanings[c.Name]
		list = append(list, control{c, cmp.Or(m[0], words(string(c.Name))), m[1]})
	}
	return list
}

func sandboxPath(id string) string { return Path + "sandboxes/" + url.PathEscape(id) }
func runPath(id string) string     { return Path + "runs/" + url.PathEscape(id) }

func (s *Server) sandboxView(ctx context.Context, r *http.Request, sess *session) (sandboxView, error) {
	id, p := sandbox.CanonicalID(r.PathValue("id")), sess.id.Principal
	box, err := s.opts.Engine.Get(ctx, p, id)
	if err != nil {
		return sandboxView{}, err
	}
	v := sandboxView{Sandbox: box, Controls: controlsOf(box.Receipt), Stream: sandboxPath(box.ID) + "/events"}
	v.frame = s.frame(sess, cmp.Or(box.Name, short(box.ID)), "")
	s.loads.want(p)
	v.Load = s.loads.load(box)
	runs, err := s.opts.Engine.Runs(ctx, p, box.ID, sandboxRuns)
	if err != nil {
		return sandboxView{}, err
	}
	listed, err := s.opts.Engine.LastRuns(ctx, p, recentRuns)
	if err != nil {
		return sandboxView{}, err
	}
	known := map[string]sandbox.ListedRun{}
	for _, run := range listed {
		known[run.ID] = run
	}
	for _, run := range slices.Backward(runs) {
		row := newRunRow(sandbox.ListedRun{Run: run, Language: known[run.ID].Language, Program: known[run.ID].Program})
		if run.Service != nil && run.Status == sandbox.RunRunning {
			v.Services = append(v.Services, row)
		} else {
			v.Runs = append(v.Runs, row)
		}
	}
	all := append(slices.Clone(v.Services), v.Runs...)
	slices.SortStableFunc(all, func(a, b runRow) int { return b.Started.Compare(a.Started) })
	until := s.opts.Now()
	if !v.Live() {
		until = box.Ended
	}
	v.Timeline, v.Previews = newTimeline(all, until), s.opts.Ports != nil && v.Live()
	if v.Snapshots, err = s.snapshotsView(ctx, p, box.ID); err != nil {
		return sandboxView{}, err
	}
	if v.Online() {
		if v.Connections, err = s.opts.Engine.Connections(ctx, p, box.ID, connections); err != nil {
			return sandboxView{}, err
		}
		slices.Reverse(v.Connections)
		for _, c := range v.Connections {
			if c.Blocked != "" {
				v.Refused++
			}
		}
	}
	return v, nil
}

func (s *Server) sandbox(w http.ResponseWriter, r *http.Request, sess *session) error {
	v, err := s.sandboxView(r.Context(), r, sess)
	if err == nil {
		s.show(w, r, http.StatusOK, "sandbox", v)
	}
	return err
}

func (s *Server) sandboxEvents(w http.ResponseWriter, r *http.Request, sess *session) error {
	return s.follow(w, r, "sandbox-live", pollEvery, func(ctx context.Context) (any, bool, error) {
		v, err := s.sandboxView(ctx, r, sess)
		return v, err == nil && v.State == sandbox.Stopped, err
	})
}

func (s *Server) stopSandbox(w http.ResponseWriter, r *http.Request, sess *session) error {
	id := sandbox.CanonicalID(r.PathValue("id"))
	if err := s.opts.Engine.Stop(r.Context(), sess.id.Principal, id); err != nil {
		return err
	}
	http.Redirect(w, r, sandboxPath(id), http.StatusSeeOther)
	return nil
}

func (s *Server) hibernate(w http.ResponseWriter, r *http.Request, sess *session) error {
	return s.change(w, r, sess, s.opts.Engine.Hibernate)
}

func (s *Server) wake(w http.ResponseWriter, r *http.Request, sess *session) error {
	return s.change(w, r, sess, s.opts.Engine.Wake)
}

// change changes the state of a sandbox, and leads to its page.
func (s *Server) change(w http.ResponseWriter, r *http.Request, sess *session, do func(context.Context, sandbox.Principal, string) error) error {
	id := sandbox.CanonicalID(r.PathValue("id"))
	if err := do(r.Context(), sess.id.Principal, id); err != nil {
		return err
	}
	http.Redirect(w, r, sandboxPath(id), http.StatusSeeOther)
	return nil
}

// Summary says in plain words what confines the sandbox.
func (v sandboxView) Summary() string {
	reach := "They reach no network."
	if v.Online() {
		reach = "They reach " + string(v.Network) + ", and nothing else."
	}
	processors := "processors"
	if v.Limits.CPUs == 1 {
		processors = "processor"
	}
	kernel := ""
	if sandbox.Boundary(v.Receipt.Control(sandbox.ControlBoundary).Value).OwnKernel() {
		kernel = " They run on a kernel of their own, not on this machine's."
	}
	weak := 0
	for _, c := range v.Receipt {
		if !c.Enforced {
			weak++
		}
	}
	enforced := fmt.Sprintf(" All %d controls are in force.", len(v.Receipt))
	if weak > 0 {
		enforced = fmt.Sprintf(" %d of %d controls are not in force.", weak, len(v.Receipt))
	}
	if len(v.Receipt) == 0 {
		enforced = ""
	}
	return fmt.Sprintf("The programs share %s %s, %s of memory, %s of disk and %d processes. %s%s%s", cpus(v.Limits.CPUs), processors,
		sandbox.FormatBytes(v.Limits.MemoryBytes), sandbox.FormatBytes(v.Limits.DiskBytes), v.Limits.Processes, reach, kernel, enforced)
}

// where returns the destination of a connection.
func where(c sandbox.Connection) string {
	host := c.Host
	if host == "" && c.Address.IsValid() {
		host = c.Address.String()
	}
	if c.Port != 0 {
		host += ":" + strconv.Itoa(int(c.Port))
	}
	return host
}
