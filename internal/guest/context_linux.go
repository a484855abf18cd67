package guest

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
)

const (
	// maxContexts bounds the contexts of a sandbox.
	maxContexts = 64
	// maxContextID bounds a context's name, in bytes.
	maxContextID = 128
	// maxQueue bounds the kept runs of a context that wait for their turn.
	// maxKept bounds the ended runs of a sandbox whose end no caller took.
	maxQueue = 64
	maxKept  = 32
)

// contexts are the contexts of a sandbox, by their names.
type contexts struct {
	g *Guest

	mu    sync.Mutex
	byID  map[string]*evaluator
	byTag map[string]*run // kept runs only
	ended []*run          // kept runs that have ended, oldest first
}

// An evaluator is one context: an interpreter that keeps its state between runs.
// If the interpreter died, the evaluator starts another.
type evaluator struct {
	g       *Guest
	id      string
	program kernels.Program
	account *account.Account
	cwd     string // where interpreters start
	env     map[string]string
	prepare []string

	turn chan struct{} // has a value while no run is under way

	mu      sync.Mutex
	live    *interpreter // nil if there is none; guarded by mu
	lost    string       // why the last one died; empty when a run has reported it
	run     *run         // under way, if one is
	runs    int
	base    map[string]string // environment that the next run adds permanently
	removed bool
	queued  int        // kept runs that wait for their turn
	late    lateOutput // output that came between runs
}

// contextRoutes adds the paths of the code interpreter.
func (g *Guest) contextRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+guestapi.PathExecute, g.execute)
	mux.HandleFunc("POST "+guestapi.PathContexts, rpc.Plain(g.createContext))
	mux.HandleFunc("GET "+guestapi.PathContexts, rpc.Plain(g.listContexts))
	mux.HandleFunc("DELETE "+guestapi.PathContexts+"/{id}", rpc.Plain(g.removeContext))
	mux.HandleFunc("POST "+guestapi.PathContexts+"/{id}/restart", rpc.Plain(g.restartContext))
	mux.HandleFunc("POST "+guestapi.PathContexts+"/{id}/prepare", rpc.Plain(g.prepareContext))
	mux.HandleFunc("POST "+guestapi.PathContexts+"/{id}/interrupt", rpc.Plain(g.interruptContext))
	mux.HandleFunc("POST "+guestapi.PathContexts+"/{id}/input", rpc.Plain(g.contextInput))
	mux.HandleFunc("POST "+guestapi.PathExecutions+"/{tag}/connect", g.connectRun)
	mux.HandleFunc("POST "+guestapi.PathExecutions+"/{tag}/interrupt", rpc.Plain(g.interruptRun))
	mux.HandleFunc("POST "+guestapi.PathExecutions+"/{tag}/input", rpc.Plain(g.runInput))
}

var errNoContext = rpc.Errorf(guestapi.CodeNotFound, "no such context")

// newEvaluator makes a context without an interpreter.
func (g *Guest) newEvaluator(user string, req *guestapi.ContextRequest) (*evaluator, error) {
	language := req.Language
	if language == "" {
		language = "python"
	}
	program, ok := kernels.Find(language)
	if !ok {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "no contexts of language %q; there are %s", language, strings.Join(kernels.Languages(), ", "))
	}
	if len(req.ID) > maxContextID || strings.ContainsAny(req.ID, "/\x00") {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "a context's name has at most %d bytes and no slash", maxContextID)
	}
	if err := checkConfig(&guestapi.ProcessConfig{Cmd: program.Language, Cwd: req.Cwd, Envs: req.Env}); err != nil {
		return nil, err
	}
	a, err := g.accounts.Find(user)
	if err != nil {
		return nil, err
	}
	e := &evaluator{
		g: g, id: req.ID, program: program, account: a, cwd: req.Cwd,
		env: maps.Clone(req.Env), prepare: slices.Clone(req.Prepare),
		turn: make(chan struct{}, 1),
	}
	e.turn <- struct{}{}
	if e.id == "" {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, err
		}
		e.id = hex.EncodeToString(b[:])
	}
	return e, nil
}

// add registers a context.
func (cs *contexts) add(e *evaluator) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byID[e.id] != nil {
		return rpc.Errorf(guestapi.CodeAlreadyExists, "context %q is there already", e.id)
	}
	if len(cs.byID) >= maxContexts {
		return rpc.Errorf(guestapi.CodeResourceExhausted, "there are %d contexts already", len(cs.byID))
	}
	cs.byID[e.id] = e
	return nil
}

// drop forgets a context.
func (cs *contexts) drop(e *evaluator) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byID[e.id] == e {
		delete(cs.byID, e.id)
	}
}

func (cs *contexts) find(id string) (*evaluator, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if e := cs.byID[id]; e != nil {
		return e, nil
	}
	return nil, errNoContext
}

// resolve returns the context of a run, and makes it if necessary.
func (cs *contexts) resolve(user string, req *guestapi.ExecuteRequest) (*evaluator, error) {
	wanted := &guestapi.ContextRequest{Language: req.Language, Cwd: req.Cwd, ID: req.ContextID, Env: req.Env, Prepare: req.Prepare}
	create := req.Create
	if wanted.ID == "" {
		program, ok := kernels.Find(req.Language)
		if !ok && req.Language == "" {
			program, ok = kernels.Find("python")
		}
		if ok {
			wanted.ID = guestapi.DefaultContextID(program.Language)
		}
		create = true
	}
	e, err := cs.find(wanted.ID)
	if err != nil && create {
		if e, err = cs.g.newEvaluator(user, wanted); err != nil {
			return nil, err
		}
		if cs.add(e) != nil {
			// Another run made it, or there is no more room.
			if e, err = cs.find(wanted.ID); err != nil {
				return nil, rpc.Errorf(guestapi.CodeResourceExhausted, "there are %d contexts already", maxContexts)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if create {
		if err := e.adopt(req.Cwd, req.Env); err != nil {
			return nil, err
		}
	}
	if req.Language != "" {
		if p, ok := kernels.Find(req.Language); !ok || p.Language != e.program.Language {
			return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "context %q is of language %s, not %s", e.id, e.program.Language, req.Language)
		}
	}
	return e, nil
}

// adopt gives the run's environment to a context that was made in advance and
// has had no run yet. If the run starts in another directory, adopt ends the
// interpreter, so that the next one starts there.
func (e *evaluator) adopt(cwd string, env map[string]string) error {
	if err := e.checkEnv(env); err != nil {
		return err
	}
	e.mu.Lock()
	fresh := e.runs == 0 && e.queued == 0 && e.run == nil && e.base == nil
	moves := fresh && cwd != e.cwd
	if fresh && !maps.Equal(env, e.env) {
		e.env = maps.Clone(env)
		if !moves {
			e.base = e.env
		}
	}
	if moves {
		e.cwd = cwd
	}
	e.mu.Unlock()
	if moves {
		return e.end(false, "")
	}
	return nil
}

// checkEnv returns an error if a context cannot have these variables.
func (e *evaluator) checkEnv(env map[string]string) error {
	if e.program.Shell {
		for name := range env {
			if !kernels.ValidEnvName(name) {
				return rpc.Errorf(guestapi.CodeInvalidArgument, "bad environment variable %q", name)
			}
		}
	}
	return checkConfig(&guestapi.ProcessConfig{Cmd: e.program.Language, Envs: env})
}

func (g *Guest) createContext(r *http.Request, in *guestapi.ContextRequest) (*guestapi.Context, error) {
	e, err := g.newEvaluator(rpc.User(r), in)
	if err != nil {
		return nil, err
	}
	if err := g.contexts.add(e); err != nil {
		return nil, err
	}
	if _, err := e.ensure(r.Context().Done()); err != nil {
		_ = e.end(true, "")
		return nil, err
	}
	return e.describe(), nil
}

func (g *Guest) listContexts(*http.Request, *struct{}) ([]guestapi.Context, error) {
	g.contexts.mu.Lock()
	all := slices.Collect(maps.Values(g.contexts.byID))
	g.contexts.mu.Unlock()
	list := make([]guestapi.Context, 0, len(all))
	for _, e := range all {
		list = append(list, *e.describe())
	}
	slices.SortFunc(list, func(a, b guestapi.Context) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

func (e *evaluator) describe() *guestapi.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &guestapi.Context{ID: e.id, Language: e.program.Language, Cwd: e.cwd, Busy: e.run != nil, Runs: e.runs}
	if e.live != nil {
		c.Version, c.PID, c.Cwd = e.live.version, e.live.p.child.pid, e.live.p.cwd
	}
	return c
}

func (g *Guest) removeContext(r *http.Request, _ *struct{}) (*struct{}, error) {
	e, err := g.contexts.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &struct{}{}, e.end(true, "the context was removed")
}

func (g *Guest) restartContext(r *http.Request, _ *struct{}) (*struct{}, error) {
	e, err := g.contexts.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &struct{}{}, e.end(false, "the context was restarted")
}

// end ends a context's interpreter and every process that it started. If remove
// is set it removes the context, too. The end of a run under way reports the
// cause.
func (e *evaluator) end(remove bool, cause string) error {
	e.mu.Lock()
	e.removed = e.removed || remove
	k := e.live
	run := e.run
	e.mu.Unlock()
	if run != nil {
		run.doom(cause)
	}
	if remove {
		e.g.contexts.drop(e)
	}
	if k == nil {
		return nil
	}
	err := e.g.killTree(k.p)
	<-k.dead
	e.mu.Lock()
	e.lost = "" // the caller asked for it, so the next run need not report it
	e.mu.Unlock()
	return err
}

func (g *Guest) interruptContext(r *http.Request, in *guestapi.InterruptRequest) (*struct{}, error) {
	e, err := g.contexts.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	run := e.run
	e.mu.Unlock()
	if run == nil {
		return nil, rpc.Errorf(guestapi.CodeAborted, "context %q has no run under way", e.id)
	}
	run.stop(in)
	return &struct{}{}, nil
}

func grace(millis int64) time.Duration {
	if millis <= 0 {
		return guestapi.DefaultGrace
	}
	return min(time.Duration(millis)*time.Millisecond, time.Hour)
}

func (g *Guest) contextInput(r *http.Request, in *guestapi.InputRequest) (*struct{}, error) {
	e, err := g.contexts.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	run := e.run
	e.mu.Unlock()
	if run == nil {
		return nil, rpc.Errorf(guestapi.CodeAborted, "context %q has no run under way", e.id)
	}
	return &struct{}{}, run.input(in)
}
