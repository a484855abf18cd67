package process

import (
	"errors"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Routes adds the procedures of processes.
func (s *Set) Routes(mux *http.ServeMux) {
	mux.HandleFunc(guestapi.ProcStart, rpc.Streaming(s.start))
	mux.HandleFunc(guestapi.ProcConnect, rpc.Streaming(s.connect))
	mux.HandleFunc(guestapi.ProcList, rpc.Unary(s.list))
	mux.HandleFunc(guestapi.ProcUpdate, rpc.Unary(s.update))
	mux.HandleFunc(guestapi.ProcSendInput, rpc.Unary(s.sendInput))
	mux.HandleFunc(guestapi.ProcCloseStdin, rpc.Unary(s.closeStdin))
	mux.HandleFunc(guestapi.ProcSendSignal, rpc.Unary(s.sendSignal))
	mux.HandleFunc(guestapi.PathListening, rpc.Unary(s.listening))
}

// start starts a run and streams its events.
func (s *Set) start(r *http.Request, in *guestapi.StartRequest, out *rpc.Stream) error {
	timeout, err := rpc.Timeout(r)
	if err != nil {
		return err
	}
	p, a, err := s.launch(in, rpc.User(r), timeout)
	if err != nil {
		return err
	}
	start := guestapi.ProcessEvent{Start: &guestapi.StartEvent{PID: uint32(p.child.pid)}}
	if err := out.Send(&guestapi.EventMessage{Event: start}); err != nil {
		a.detach()
		if p.tag == "" {
			_ = s.Kill(p.Process) // no caller knows its pid
		}
		return err
	}
	return s.carry(r, p, a, out)
}

// connect attaches to a run.
func (s *Set) connect(r *http.Request, in *guestapi.ConnectRequest, out *rpc.Stream) error {
	p, err := s.table.find(in.Process)
	if err != nil {
		return err
	}
	start := guestapi.ProcessEvent{Start: &guestapi.StartEvent{PID: uint32(p.child.pid)}}
	if err := out.Send(&guestapi.EventMessage{Event: start}); err != nil {
		return err
	}
	a := p.out.attach()
	if in.Have != nil {
		a.again(*in.Have)
	}
	return s.carry(r, p, a, out)
}

var envelopePool = sync.Pool{New: func() any { return new([]byte) }}

// carry streams a run's output and its end. It returns at the end or when
// the caller leaves, and detaches a.
func (s *Set) carry(r *http.Request, p *run, a *attachment, out *rpc.Stream) error {
	defer a.detach()
	interval := rpc.Keepalive(r)
	silent := time.NewTimer(interval)
	defer silent.Stop()
	for {
		c, err := a.wait(r.Context(), silent.C)
		if err != nil {
			return rpc.Errorf(guestapi.CodeCanceled, "the caller left")
		}
		silent.Reset(interval)
		switch {
		case rpc.Expired(r) && (c == nil || c.end == nil || p.timedOut.Load()):
			// An end that a timeout caused would look like a program that failed.
			return rpc.Errorf(guestapi.CodeDeadlineExceeded, "the timeout has passed")
		case c == nil:
			alive := guestapi.ProcessEvent{Keepalive: &guestapi.KeepaliveEvent{}}
			if err := out.Send(&guestapi.EventMessage{Event: alive}); err != nil {
				return err
			}
		case c.end != nil:
			end := *c.end
			if !rpc.Extended(r) {
				end.Detail = nil
			}
			if err := out.Last(&guestapi.EventMessage{Event: guestapi.ProcessEvent{End: &end}}); err != nil {
				return err
			}
			a.took()
			s.table.took(p)
			return nil
		default:
			// The buffer comes from a pool, so a silent stream holds none.
			buf := envelopePool.Get().(*[]byte)
			*buf = guestapi.AppendDataEnvelope((*buf)[:0], c.stream, c.data)
			err := out.Raw(*buf)
			envelopePool.Put(buf)
			if err != nil {
				return err
			}
			a.took()
		}
	}
}

func (s *Set) list(*http.Request, *struct{}) (*guestapi.ListProcessesResponse, error) {
	out := &guestapi.ListProcessesResponse{Processes: []guestapi.ProcessInfo{}}
	for _, p := range s.table.list() {
		if p.part {
			continue
		}
		out.Processes = append(out.Processes, guestapi.ProcessInfo{
			Config: p.config, PID: uint32(p.child.pid), Tag: p.tag,
		})
	}
	return out, nil
}

func (s *Set) update(_ *http.Request, in *guestapi.UpdateRequest) (*struct{}, error) {
	p, err := s.table.find(in.Process)
	if err != nil {
		return nil, err
	}
	if in.PTY == nil || in.PTY.Size == nil {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "nothing to update")
	}
	if p.terminal == nil {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d has no terminal", p.child.pid)
	}
	changed, err := setSize(p.terminal, *in.PTY.Size)
	if err != nil {
		if errors.Is(err, os.ErrClosed) {
			return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d has ended", p.child.pid)
		}
		return nil, err
	}
	if changed {
		s.trees.tellSize(p.child.pid)
	}
	return &struct{}{}, nil
}

func (s *Set) sendInput(r *http.Request, in *guestapi.SendInputRequest) (*struct{}, error) {
	p, err := s.table.find(in.Process)
	if err != nil {
		return nil, err
	}
	if len(in.Input.Stdin) > 0 && len(in.Input.PTY) > 0 {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "input for both stdin and a terminal")
	}
	data := in.Input.Stdin
	if len(in.Input.PTY) > 0 {
		data = in.Input.PTY
		if p.terminal == nil {
			return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d has no terminal", p.child.pid)
		}
	}
	if p.stdin == nil {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d was started without input", p.child.pid)
	}
	if err := p.stdin.write(r.Context().Done(), data); err != nil {
		return nil, err
	}
	return &struct{}{}, nil
}

func (s *Set) closeStdin(r *http.Request, in *guestapi.CloseStdinRequest) (*struct{}, error) {
	p, err := s.table.find(in.Process)
	if err != nil {
		return nil, err
	}
	if p.stdin == nil {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d was started without input", p.child.pid)
	}
	if p.terminal != nil {
		const endOfFile = 4 // Control-D
		if err := p.stdin.write(r.Context().Done(), []byte{endOfFile}); err != nil {
			return nil, err
		}
		return &struct{}{}, nil
	}
	p.stdin.close()
	return &struct{}{}, nil
}

var signals = map[guestapi.Signal]unix.Signal{
	guestapi.SIGTERM: unix.SIGTERM,
	guestapi.SIGINT:  unix.SIGINT,
	guestapi.SIGHUP:  unix.SIGHUP,
}

func (s *Set) sendSignal(_ *http.Request, in *guestapi.SendSignalRequest) (*struct{}, error) {
	p, err := s.table.find(in.Process)
	if err != nil {
		return nil, err
	}
	if in.Signal == guestapi.SIGKILL {
		if err := s.KillAsked(p.Process); err != nil {
			return nil, err
		}
		return &struct{}{}, nil
	}
	sig, ok := signals[in.Signal]
	if !ok {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "unknown signal %q", string(in.Signal))
	}
	switch err := p.Signal(sig); {
	case errors.Is(err, unix.ESRCH):
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "process %d has ended", p.child.pid)
	case err != nil:
		return nil, rpc.Errorf(guestapi.CodeInternal, "signal process %d: %v", p.child.pid, err)
	}
	return &struct{}{}, nil
}
