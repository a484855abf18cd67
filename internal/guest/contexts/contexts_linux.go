package contexts

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
	"github.com/glovebox-dev/glovebox/internal/language"
)

// newContext makes a context without an interpreter.
func (s *Server) newContext(user string, req *guestapi.ContextRequest) (*context, error) {
	name := cmp.Or(req.Language, language.Default)
	program, ok := kernels.Find(name)
	if !ok {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "no contexts of language %q; there are %s", name, strings.Join(language.Kernels(), ", "))
	}
	if len(req.ID) > maxContextID || strings.ContainsAny(req.ID, "/\x00") {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "a context's name has at most %d bytes and no slash", maxContextID)
	}
	if err := process.CheckConfig(&guestapi.ProcessConfig{Cmd: program.Language, Cwd: req.Cwd, Envs: req.Env}); err != nil {
		return nil, err
	}
	a, err := s.accounts.Find(user)
	if err != nil {
		return nil, err
	}
	c := &context{
		server: s, id: req.ID, program: program, account: a, cwd: req.Cwd,
		env: maps.Clone(req.Env), prepare: slices.Clone(req.Prepare),
		turn: make(chan struct{}, 1),
	}
	c.turn <- struct{}{}
	if c.id == "" {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, err
		}
		c.id = hex.EncodeToString(b[:])
	}
	return c, nil
}

// find returns the context of that name for a request. It is an error if a program of
// the box asks for a context of another user: its code would run as that user.
func (s *Server) find(r *http.Request, id string) (*context, error) {
	c, err := s.registry.find(id)
	if err != nil || !rpc.IsByProgram(r) {
		return c, err
	}
	a, err := s.accounts.Find(account.UserName)
	if err != nil {
		return nil, err
	}
	if a.UID != c.account.UID {
		return nil, rpc.Errorf(guestapi.CodePermissionDenied, "context %q belongs to user %s: programs of the sandbox use contexts of %s", c.id, c.account.Name, a.Name)
	}
	return c, nil
}

// resolve returns the context of a run, and makes it if necessary.
func (s *Server) resolve(r *http.Request, req *guestapi.ExecuteRequest) (*context, error) {
	wanted := &guestapi.ContextRequest{Language: req.Language, Cwd: req.Cwd, ID: req.ContextID, Env: req.Env, Prepare: req.Prepare}
	create := req.Create
	if wanted.ID == "" {
		program, ok := kernels.Find(req.Language)
		if !ok && req.Language == "" {
			program, ok = kernels.Find(language.Default)
		}
		if ok {
			wanted.ID = guestapi.DefaultContextID(program.Name)
		}
		create = true
	}
	c, err := s.find(r, wanted.ID)
	if errors.Is(err, errNoContext) && create {
		if c, err = s.newContext(rpc.User(r), wanted); err != nil {
			return nil, err
		}
		if s.registry.add(c) != nil {
			// Another run made it, or there is no more room.
			if c, err = s.find(r, wanted.ID); errors.Is(err, errNoContext) {
				return nil, errTooMany()
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if create {
		if err := c.adopt(req.Cwd, req.Env); err != nil {
			return nil, err
		}
	}
	if req.Language != "" {
		if p, ok := kernels.Find(req.Language); !ok || p.Name != c.program.Name {
			return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "context %q is of language %s, not %s", c.id, c.program.Name, req.Language)
		}
	}
	return c, nil
}

// adopt gives the run's environment to a context that was made in advance and
// has had no run yet. If the run starts in another directory, the interpreter
// moves there with that run. One that cannot move is ended, so that the next one
// starts there.
func (c *context) adopt(cwd string, env map[string]string) error {
	if err := c.checkEnv(env); err != nil {
		return err
	}
	c.mu.Lock()
	fresh := c.runs == 0 && c.queued == 0 && c.run == nil && c.base == nil
	moves := fresh && cwd != c.cwd
	if fresh && !maps.Equal(env, c.env) {
		c.env = maps.Clone(env)
		if !moves && !c.moved {
			c.base = c.env
		}
	}
	if moves {
		c.cwd, c.dir, c.moved = cwd, "", false
	}
	it := c.live
	c.mu.Unlock()
	if !moves || it != nil && c.relocate(it) {
		return nil
	}
	return c.end(false, "")
}

// move makes a context that has had no run yet start in cwd, which stands for
// dir.
func (c *context) move(cwd, dir string) {
	c.mu.Lock()
	env := c.env
	c.mu.Unlock()
	if c.adopt(cwd, env) != nil {
		return // the interpreter could not be ended; a run reports that
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cwd == cwd {
		c.dir = dir
	}
}

// checkEnv returns an error if a context cannot have these variables.
func (c *context) checkEnv(env map[string]string) error {
	if c.program.Shell {
		for name := range env {
			if !kernels.ValidEnvName(name) {
				return rpc.Errorf(guestapi.CodeInvalidArgument, "bad environment variable %q", name)
			}
		}
	}
	return process.CheckConfig(&guestapi.ProcessConfig{Cmd: c.program.Language, Envs: env})
}

// describe returns the state of a context, as it is answered.
func (c *context) describe() *guestapi.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &guestapi.Context{ID: c.id, Language: c.program.Name, Cwd: cmp.Or(c.dir, c.cwd), Busy: c.run != nil, Runs: c.runs}
	if c.live != nil {
		out.Version, out.PID, out.Cwd = c.live.version, c.live.process.PID(), c.live.dir
	}
	return out
}

// end ends a context's interpreter and every process that it started. If remove
// is set it removes the context, too. The end of a run under way reports the
// cause.
func (c *context) end(remove bool, cause string) error {
	c.mu.Lock()
	c.removed = c.removed || remove
	it := c.live
	run := c.run
	c.mu.Unlock()
	if run != nil {
		run.doom(cause)
	}
	if remove {
		c.server.registry.drop(c)
	}
	if it == nil {
		return nil
	}
	err := c.server.processes.Kill(it.process)
	<-it.dead
	c.mu.Lock()
	c.lost = "" // the caller asked for it, so the next run need not report it
	c.mu.Unlock()
	return err
}
