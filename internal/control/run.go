package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// maxRun bounds the description of a run, in bytes.
	maxRun = 32 << 20
	// startTime is the timeout for the start of a run, which may fetch an image.
	startTime = 15 * time.Minute
)

// ErrElsewhere is wrapped in the error of a request that its process cannot take. The
// process has done nothing, and another one may take the request.
var ErrElsewhere = errors.New("the process takes no such requests")

// A StartRequest describes a run in a new sandbox. It is the part of
// [sandbox.RunRequest] and [sandbox.CreateRequest] that a command line can express.
type StartRequest struct {
	Code     []byte                  `json:"code,omitempty"`
	Language string                  `json:"language,omitempty"`
	Args     []string                `json:"args,omitempty"`
	Argv     []string                `json:"argv,omitempty"`
	Dir      string                  `json:"dir,omitempty"`
	Root     bool                    `json:"root,omitempty"`
	Timeout  time.Duration           `json:"timeout,omitempty"`
	Service  *sandbox.ServiceRequest `json:"service,omitempty"`

	Image     string            `json:"image,omitempty"`
	Network   sandbox.Network   `json:"network,omitempty"`
	Workspace string            `json:"workspace,omitempty"`
	Limits    sandbox.Limits    `json:"limits"`
	Env       map[string]string `json:"env,omitempty"` // may hold secrets
}

// startOf returns the description of a run.
func startOf(r sandbox.RunRequest) StartRequest {
	return StartRequest{
		Code: []byte(r.Code), Language: r.Language, Args: r.Args, Argv: r.Argv, Dir: r.Dir, Root: r.Root,
		Timeout: r.Timeout, Service: r.Service,
		Image: r.New.Image, Network: r.New.Network, Workspace: r.New.Workspace, Limits: r.New.Limits, Env: r.New.Env,
	}
}

// request returns the run that s describes.
func (s StartRequest) request() sandbox.RunRequest {
	return sandbox.RunRequest{
		New:  sandbox.CreateRequest{Image: s.Image, Network: s.Network, Workspace: s.Workspace, Limits: s.Limits, Env: s.Env},
		Code: string(s.Code), Language: s.Language, Args: s.Args, Argv: s.Argv, Dir: s.Dir, Root: s.Root,
		Timeout: s.Timeout, Service: s.Service,
	}
}

// A Starter starts a run in a new sandbox, which outlives the caller.
type Starter func(context.Context, sandbox.RunRequest) (sandbox.Run, error)

// OfferRuns lets commands start runs in this process.
func (s *Server) OfferRuns(start Starter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start = start
}

func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	start := s.start
	s.mu.Unlock()
	if start == nil {
		answer(w, http.StatusNotFound, problem{Kind: sandbox.Unavailable, Message: ErrElsewhere.Error()})
		return
	}
	var req StartRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRun)).Decode(&req); err != nil {
		refuse(w, sandbox.Errorf(sandbox.Invalid, "%w", err))
		return
	}
	// The end of the command's connection ends the start, not the run.
	run, err := start(r.Context(), req.request())
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, run)
}

// Start starts a run in a new sandbox of the process. The fields of req that
// [StartRequest] lacks have no effect. The error wraps [ErrElsewhere] if the process
// does not hold sandboxes for commands.
func (c Client) Start(ctx context.Context, req sandbox.RunRequest) (sandbox.Run, error) {
	conn, resp, err := c.askWithin(ctx, startTime, http.MethodPost, "/runs", startOf(req))
	if err != nil {
		return sandbox.Run{}, err
	}
	defer conn.Close()
	var run sandbox.Run
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&run); err != nil {
		return sandbox.Run{}, sandbox.Errorf(sandbox.Unavailable, "read answer: %w", err)
	}
	return run, nil
}
