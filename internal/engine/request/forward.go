package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Forward has the rules of one sandbox for requests of the guest's protocol.
type Forward struct {
	Rules    *Rules
	Env      map[string]string // of the sandbox
	Defaults sandbox.ProgramDefaults
}

// Adapt applies the rules for runs to a request that starts a program.
func (f Forward) Adapt(req *http.Request) error {
	if req.Method != http.MethodPost {
		return nil
	}
	switch req.URL.Path {
	case guestapi.ProcStart:
		return f.adaptStart(req)
	case guestapi.PathExecute:
		return adaptJSON(req, func(in *guestapi.ExecuteRequest) error {
			in.EnvVars = f.environ(in.EnvVars)
			if in.ContextID == "" && in.Cwd == "" {
				in.Cwd = f.Defaults.Dir // of the default context, if this creates it
			}
			in.TimeoutMillis = f.runTime(float64(in.TimeoutMillis)).Milliseconds()
			return nil
		})
	case guestapi.ProcConnect, guestapi.FSWatchDir:
		return f.adaptTimeout(req, func(asked float64) time.Duration {
			return milliseconds(min(asked, guestapi.MaxTimeoutMillis))
		})
	case guestapi.PathContexts:
		return adaptJSON(req, func(in *contextRequest) error {
			in.Env = f.environ(in.Env)
			maps.Copy(in.Env, in.EnvVars)
			in.EnvVars = nil
			if in.Cwd == "" {
				in.Cwd = f.Defaults.Dir
			}
			return nil
		})
	}
	return nil
}

// A contextRequest also accepts its environment under E2B's name.
type contextRequest struct {
	guestapi.ContextRequest
	EnvVars map[string]string `json:"env_vars,omitempty"`
}

// environ returns the defaults, overridden by the sandbox's environment and by env.
func (f Forward) environ(env map[string]string) map[string]string {
	all := make(map[string]string, len(f.Defaults.Env)+len(f.Env)+len(env))
	maps.Copy(all, f.Defaults.Env)
	maps.Copy(all, f.Env)
	maps.Copy(all, env)
	return all
}

// runTime returns the timeout of a program that asks for a number of milliseconds.
// Zero asks for the longest timeout, as does a number above it. The result is zero
// for a program that may run as long as its sandbox.
func (f Forward) runTime(asked float64) time.Duration {
	most := f.Rules.MaxRunTimeout
	if asked > 0 && asked <= float64(most.Milliseconds()) {
		most = milliseconds(asked)
	}
	if most.Milliseconds() > guestapi.MaxTimeoutMillis {
		return 0
	}
	return most
}

// milliseconds rounds up, because zero is no timeout.
func milliseconds(n float64) time.Duration { return time.Duration(math.Ceil(n)) * time.Millisecond }

// adaptTimeout replaces the timeout in a request's header. The clients of E2B's
// protocol send whole numbers, and some send decimals.
func (f Forward) adaptTimeout(req *http.Request, change func(asked float64) time.Duration) error {
	var asked float64
	if text := req.Header.Get(guestapi.HeaderTimeout); text != "" {
		var err error
		if asked, err = strconv.ParseFloat(text, 64); err != nil && !errors.Is(err, strconv.ErrRange) || !(asked >= 0) {
			return Invalid("%s: %s is not a number of milliseconds", guestapi.HeaderTimeout, excerpt.Quote(text))
		}
	}
	req.Header = req.Header.Clone()
	req.Header.Del(guestapi.HeaderTimeout)
	if d := change(asked); d > 0 {
		req.Header.Set(guestapi.HeaderTimeout, strconv.FormatInt(d.Milliseconds(), 10))
	}
	return nil
}

func (f Forward) adaptStart(req *http.Request) error {
	flags, msg, err := guestapi.ReadEnvelope(req.Body, nil, guestapi.MaxUnaryRequest)
	if err != nil || flags != 0 {
		return Invalid("request: is not one message of Connect's protocol")
	}
	var in guestapi.StartRequest
	if err := json.Unmarshal(msg, &in); err != nil {
		return Invalid("request: %v", err)
	}
	in.Process.Envs = f.environ(in.Process.Envs)
	if in.Process.Cwd == "" {
		in.Process.Cwd = f.Defaults.Dir
	}
	if err := f.adaptTimeout(req, f.runTime); err != nil {
		return err
	}
	if msg, err = json.Marshal(&in); err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	setBody(req, guestapi.AppendEnvelope(nil, 0, msg))
	return nil
}

// adaptJSON changes a request with a JSON body.
func adaptJSON[T any](req *http.Request, change func(*T) error) error {
	body, err := io.ReadAll(io.LimitReader(req.Body, guestapi.MaxUnaryRequest+1))
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "read request: %w", err)
	}
	if len(body) > guestapi.MaxUnaryRequest {
		return Invalid("request: is longer than %d bytes", guestapi.MaxUnaryRequest)
	}
	in := new(T)
	if len(body) > 0 {
		if err := json.Unmarshal(body, in); err != nil {
			return Invalid("request: %v", err)
		}
	}
	if err := change(in); err != nil {
		return err
	}
	if body, err = json.Marshal(in); err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	req.Header = req.Header.Clone()
	req.Header.Set("Content-Type", guestapi.ContentTypeUnary)
	setBody(req, body)
	return nil
}

func setBody(req *http.Request, body []byte) {
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}
