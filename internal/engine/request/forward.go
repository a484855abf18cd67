package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Forward has the rules of one sandbox for requests of the guest's protocol.
type Forward struct {
	Rules *Rules
	Env   map[string]string // of the sandbox
	Dir   string            // where a program starts that names no directory
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
				in.Cwd = f.Dir // of the default context, if this creates it
			}
			limit, err := f.runTime(time.Duration(in.TimeoutMillis) * time.Millisecond)
			in.TimeoutMillis = limit.Milliseconds()
			return err
		})
	case guestapi.PathContexts:
		return adaptJSON(req, func(in *contextRequest) error {
			in.Env = f.environ(in.Env)
			maps.Copy(in.Env, in.EnvVars)
			in.EnvVars = nil
			if in.Cwd == "" {
				in.Cwd = f.Dir
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

// environ returns the sandbox's environment, overridden by env.
func (f Forward) environ(env map[string]string) map[string]string {
	all := make(map[string]string, len(f.Env)+len(env))
	maps.Copy(all, f.Env)
	maps.Copy(all, env)
	return all
}

// runTime returns the timeout of a program that asks for d; zero asks for the
// longest one.
func (f Forward) runTime(d time.Duration) (time.Duration, error) {
	if d <= 0 {
		return f.Rules.MaxRunTimeout, nil
	}
	return d, f.Rules.CheckTimeout(d)
}

// clientFirst is how much later than the client's own deadline its program is
// killed. A client that sees the killed program first would take it for a
// normal end, not for a timeout.
const clientFirst = time.Second

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
		in.Process.Cwd = f.Dir
	}
	var asked int64
	if text := req.Header.Get(guestapi.HeaderTimeout); text != "" {
		// Connect allows ten digits.
		if asked, err = strconv.ParseInt(text, 10, 64); err != nil || asked < 0 || asked > 9_999_999_999 {
			return Invalid("timeout: %s is not a number of milliseconds", excerpt.Quote(text))
		}
	}
	limit, err := f.runTime(time.Duration(asked) * time.Millisecond)
	if err != nil {
		return err
	}
	if asked > 0 {
		limit += clientFirst
	}
	req.Header = req.Header.Clone()
	req.Header.Set(guestapi.HeaderTimeout, strconv.FormatInt(limit.Milliseconds(), 10))
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
