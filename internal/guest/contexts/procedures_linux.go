package contexts

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// New returns a server of contexts without contexts. If asSelf is set,
// interpreters run as the guest's own user. Before each run it calls before with the
// run's tag, and watch with the directory in which the interpreter started.
func New(accounts *account.Accounts, processes *process.Set, preview Preview, asSelf bool, before, watch func(string)) *Server {
	return &Server{
		accounts: accounts, processes: processes, preview: preview, asSelf: asSelf, before: before, watch: watch,
		registry: registry{byID: make(map[string]*context), byTag: make(map[string]*run)},
	}
}

// Routes adds the paths of contexts and their runs.
func (s *Server) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+guestapi.PathExecute, s.forE2B(s.execute))
	mux.HandleFunc("POST "+guestapi.PathContexts, s.forE2B(rpc.Plain(s.createContext)))
	mux.HandleFunc("GET "+guestapi.PathContexts, s.forE2B(rpc.Plain(s.listContexts)))
	mux.HandleFunc("DELETE "+guestapi.PathContexts+"/{id}", s.forE2B(rpc.Plain(s.removeContext)))
	mux.HandleFunc("POST "+guestapi.PathContexts+"/{id}/restart", s.forE2B(rpc.Plain(s.restartContext)))
	mux.HandleFunc("POST "+guestapi.PathContexts+"/{id}/prepare", rpc.Plain(s.prepareContext))
	mux.HandleFunc("POST "+guestapi.PathContexts+"/{id}/interrupt", rpc.Plain(s.interruptContext))
	mux.HandleFunc("POST "+guestapi.PathContexts+"/{id}/input", rpc.Plain(s.contextInput))
	mux.HandleFunc("POST "+guestapi.PathExecutions+"/{tag}/connect", s.connectRun)
	mux.HandleFunc("POST "+guestapi.PathExecutions+"/{tag}/interrupt", rpc.Plain(s.interruptRun))
	mux.HandleFunc("POST "+guestapi.PathExecutions+"/{tag}/input", rpc.Plain(s.runInput))
}

func (s *Server) createContext(r *http.Request, in *guestapi.ContextRequest) (*guestapi.Context, error) {
	c, err := s.newContext(rpc.User(r), in)
	if err != nil {
		return nil, err
	}
	s.asE2B(r, c)
	if err := s.registry.add(c); err != nil {
		return nil, err
	}
	if _, err := c.ensure(r.Context().Done()); err != nil {
		_ = c.end(true, "")
		return nil, err
	}
	return c.describe(), nil
}

// listContexts lists the contexts in the order in which they were made.
func (s *Server) listContexts(*http.Request, *struct{}) ([]guestapi.Context, error) {
	all := s.registry.list()
	list := make([]guestapi.Context, 0, len(all))
	for _, c := range all {
		list = append(list, *c.describe())
	}
	return list, nil
}

func (s *Server) removeContext(r *http.Request, _ *struct{}) (*struct{}, error) {
	c, err := s.find(r, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &struct{}{}, c.end(true, "the context was removed")
}

func (s *Server) restartContext(r *http.Request, _ *struct{}) (*struct{}, error) {
	c, err := s.find(r, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &struct{}{}, c.end(false, "the context was restarted")
}

// prepareContext imports modules in a context before its first run, and returns
// when the kernel has imported them. It refuses a context that has had a run:
// after user code has run, the kernel's reply cannot be trusted.
func (s *Server) prepareContext(r *http.Request, in *guestapi.PrepareRequest) (*struct{}, error) {
	c, err := s.find(r, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if c.program.Shell {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "a context of %s has no modules", c.program.Language)
	}
	done := r.Context().Done()
	select {
	case <-c.turn:
	case <-done:
		return nil, rpc.Errorf(guestapi.CodeCanceled, "the caller left before its turn")
	}
	defer func() { c.turn <- struct{}{} }()
	c.mu.Lock()
	runs := c.runs
	c.mu.Unlock()
	if runs > 0 {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "context %q has had a run already", c.id)
	}
	it, err := c.ensure(done)
	if err != nil {
		return nil, err
	}
	select {
	case <-it.prepared: // of a caller that left
	default:
	}
	// In a goroutine: a kernel that never reads must not block the caller.
	go func() { _ = it.request(c.program.Prepare(in.Modules)) }()
	select {
	case <-it.prepared:
		return &struct{}{}, nil
	case <-it.dead:
		return nil, rpc.Errorf(guestapi.CodeUnavailable, "the interpreter ended while it imported")
	case <-done:
		return nil, rpc.Errorf(guestapi.CodeCanceled, "the caller left")
	}
}

func (s *Server) interruptContext(r *http.Request, in *guestapi.InterruptRequest) (*struct{}, error) {
	c, err := s.find(r, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	run := c.run
	c.mu.Unlock()
	if run == nil {
		return nil, rpc.Errorf(guestapi.CodeAborted, "context %q has no run under way", c.id)
	}
	run.stop(in)
	return &struct{}{}, nil
}

func (s *Server) contextInput(r *http.Request, in *guestapi.InputRequest) (*struct{}, error) {
	c, err := s.find(r, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	run := c.run
	c.mu.Unlock()
	if run == nil {
		return nil, rpc.Errorf(guestapi.CodeAborted, "context %q has no run under way", c.id)
	}
	return &struct{}{}, run.input(in)
}
