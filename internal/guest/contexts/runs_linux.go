package contexts

import (
	"net/http"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// execute serves POST /execute.
func (s *Server) execute(w http.ResponseWriter, r *http.Request) {
	req := new(guestapi.ExecuteRequest)
	if err := rpc.ReadJSON(w, r, req); err != nil {
		rpc.WriteError(w, err)
		return
	}
	x, err := s.begin(r, req)
	if err != nil {
		rpc.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", guestapi.ContentTypeEvents)
	x.carry(w, r)
}

// begin waits for the context's turn and starts a run.
func (s *Server) begin(r *http.Request, req *guestapi.ExecuteRequest) (*run, error) {
	c, err := s.resolve(r, req)
	if err != nil {
		return nil, err
	}
	if c.program.Shell {
		if strings.IndexByte(req.Code, 0) >= 0 {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "code of a shell has no NUL byte")
		}
	}
	if err := c.checkEnv(req.EnvVars); err != nil {
		return nil, err
	}
	x := &run{context: c, req: req, e2b: !rpc.Extended(r), news: make(chan struct{}, 1), hurried: make(chan struct{})}
	x.space.L = &x.mu
	s.before(req.Tag)
	if req.Tag != "" {
		return x, x.beginKept()
	}
	select {
	case <-c.turn:
	case <-r.Context().Done():
		return nil, rpc.Errorf(guestapi.CodeCanceled, "the caller left before its turn")
	}
	if err := x.open(r.Context().Done()); err != nil {
		c.turn <- struct{}{}
		return nil, err
	}
	x.start()
	return x, nil
}

// connectRun serves POST /executions/{tag}/connect.
func (s *Server) connectRun(w http.ResponseWriter, r *http.Request) {
	x, err := s.registry.kept(r.PathValue("tag"))
	if err != nil {
		rpc.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", guestapi.ContentTypeEvents)
	x.wake() // events may be waiting
	x.carry(w, r)
}

func (s *Server) interruptRun(r *http.Request, in *guestapi.InterruptRequest) (*struct{}, error) {
	x, err := s.registry.kept(r.PathValue("tag"))
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	begun := x.begun
	if !begun {
		x.why.Stopped = true
		if !x.isWithdrawn {
			x.isWithdrawn = true
			close(x.withdrawn)
		}
	}
	x.mu.Unlock()
	if begun {
		x.stop(in)
	}
	return &struct{}{}, nil
}

func (s *Server) runInput(r *http.Request, in *guestapi.InputRequest) (*struct{}, error) {
	x, err := s.registry.kept(r.PathValue("tag"))
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	ready, finished := x.begun, x.finished
	x.mu.Unlock()
	switch {
	case finished:
		return nil, rpc.Errorf(guestapi.CodeAborted, "the run has ended")
	case !ready && x.context.program.Shell:
		return nil, rpc.Errorf(guestapi.CodeAborted, "the run's turn has not come")
	}
	return &struct{}{}, x.input(in)
}
