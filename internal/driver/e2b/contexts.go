package e2b

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b/plane"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b/snapshots"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// E2B's code interpreter implements contexts. It listens on its own port and
// exists only in some templates. It names its contexts itself, accepts an
// environment per run, and interrupts a run when the client disconnects. This
// file adds the rest of the guest's protocol:
//
//   - The names of contexts are kept in a file of the state directory, for later
//     processes.
//   - Runs queue here, and this process enforces their timeouts. It interrupts a
//     run by disconnecting. A run of empty code then shows whether the interrupt
//     worked; if not, the context is restarted.
//   - The last event, which gives the run's outcome, is derived from the earlier
//     events. Glovebox's interpreter sends it itself.
//   - A run keeps no output while no client is connected, and takes no input.

// interpreterPort is the port of E2B's code interpreter in a sandbox.
const interpreterPort = 49999

// Limits of contexts.
const (
	maxContexts   = 128
	maxEvent      = 48 << 20
	maxGrace      = time.Minute
	contextTime   = time.Minute // to make or restart one
	maxCode       = guestapi.MaxUnaryRequest
	maxNamesFile  = 1 << 20
	maxContextsIn = 1 << 20 // size of an answer in bytes
)

// contexts are the contexts of a box.
type contexts struct {
	b *Box

	mu   sync.Mutex
	all  map[string]*liveContext // by the name that the host gave
	runs map[string]*liveRun     // by tag
	// making are the contexts that are being made, which may take long. The
	// channel is closed when that has succeeded or failed.
	making map[string]chan struct{}
}

// A liveContext is a context of E2B's code interpreter.
type liveContext struct {
	Name     string `json:"name"`
	ID       string `json:"id"` // E2B's identifier
	Language string `json:"language"`
	Cwd      string `json:"cwd"`

	turn chan struct{} // holds one value during a run
	runs int
}

// A liveRun is a run that waits or is in progress.
type liveRun struct {
	stop chan guestapi.InterruptRequest
}

// A contextError is an error answer to the host.
type contextError struct {
	status  int
	code    guestapi.Code
	message string
}

func (e *contextError) Error() string { return e.message }

func refuseContext(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*contextError](err)
	if !ok {
		e = &contextError{http.StatusBadGateway, guestapi.CodeUnavailable, "E2B's code interpreter cannot be reached: " + err.Error()}
	}
	text, _ := json.Marshal(map[string]any{"code": e.code, "message": e.message})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_, _ = w.Write(text) // the host is this process
}

// serve answers requests about contexts.
func (c *contexts) serve(w http.ResponseWriter, r *http.Request) {
	err := c.load()
	rest, isContext := strings.CutPrefix(r.URL.Path, guestapi.PathContexts)
	tag, isRun := strings.CutPrefix(r.URL.Path, guestapi.PathExecutions+"/")
	name, what, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	switch {
	case err != nil:
	case r.URL.Path == guestapi.PathExecute && r.Method == http.MethodPost:
		err = c.execute(w, r)
	case isContext && name == "" && r.Method == http.MethodGet:
		c.list(w)
		return
	case isContext && name != "" && (r.Method == http.MethodDelete && what == "" || r.Method == http.MethodPost && what == "restart"):
		if err = c.end(r.Context(), name, what == "restart"); err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
	case isRun && strings.HasSuffix(tag, "/interrupt") && r.Method == http.MethodPost:
		if err = c.interrupt(r, strings.TrimSuffix(tag, "/interrupt")); err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
	case isRun && strings.HasSuffix(tag, "/connect"):
		err = &contextError{http.StatusNotFound, guestapi.CodeNotFound, "E2B keeps no output of a run whose caller has disconnected"}
	default:
		err = &contextError{http.StatusNotImplemented, guestapi.CodeUnimplemented, "E2B's code interpreter does not support this request; it also has no input for runs"}
	}
	if err != nil {
		refuseContext(w, err)
	}
}

// namesFile is the file with the names of the box's contexts.
func (c *contexts) namesFile() string {
	return filepath.Join(c.b.d.opts.StateDir, "e2b", "contexts", c.b.id+".json")
}

func (c *contexts) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all != nil {
		return nil
	}
	var all []*liveContext
	text, err := os.ReadFile(c.namesFile())
	if err == nil && len(text) <= maxNamesFile {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.all, c.runs, c.making = map[string]*liveContext{}, map[string]*liveRun{}, map[string]chan struct{}{}
	for _, x := range all {
		x.turn = make(chan struct{}, 1)
		c.all[x.Name] = x
	}
	return nil
}

// save writes the names to namesFile. The caller holds c.mu.
func (c *contexts) save() error {
	text, err := json.Marshal(slices.Collect(maps.Values(c.all)))
	if err != nil {
		return err
	}
	file := c.namesFile()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.Replace(file, text, 0o600)
}

// forget removes the file of a box that is gone.
func (c *contexts) forget() error {
	if err := os.Remove(c.namesFile()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// kept returns the contexts, for boxes that are made of a snapshot.
func (c *contexts) kept() ([]snapshots.Context, error) {
	if err := c.load(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []snapshots.Context
	for _, x := range c.all {
		all = append(all, snapshots.Context{Name: x.Name, ID: x.ID, Language: x.Language, Cwd: x.Cwd})
	}
	return all, nil
}

// inherit gives a new box the contexts that its snapshot has.
func (c *contexts) inherit(all []snapshots.Context) error {
	if len(all) == 0 {
		return nil
	}
	if err := c.load(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range all {
		c.all[x.Name] = &liveContext{Name: x.Name, ID: x.ID, Language: x.Language, Cwd: x.Cwd, turn: make(chan struct{}, 1)}
	}
	return c.save()
}

func (c *contexts) list(w http.ResponseWriter) {
	c.mu.Lock()
	list := make([]guestapi.Context, 0, len(c.all))
	for _, x := range c.all {
		list = append(list, guestapi.Context{ID: x.Name, Language: x.Language, Cwd: x.Cwd, Busy: len(x.turn) > 0, Runs: x.runs})
	}
	c.mu.Unlock()
	slices.SortFunc(list, func(a, b guestapi.Context) int { return strings.Compare(a.ID, b.ID) })
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the host is this process
}

// find returns the context of a run. It makes a missing context if the request
// asks for that.
func (c *contexts) find(ctx context.Context, req *guestapi.ExecuteRequest) (*liveContext, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for made := c.making[req.ContextID]; made != nil; made = c.making[req.ContextID] {
		c.mu.Unlock()
		select {
		case <-made:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	if x := c.all[req.ContextID]; x != nil {
		if req.Language != "" && req.Language != x.Language {
			return nil, &contextError{http.StatusConflict, guestapi.CodeFailedPrecondition, "the context has another language"}
		}
		return x, nil
	}
	if !req.Create || req.ContextID == "" {
		return nil, &contextError{http.StatusNotFound, guestapi.CodeNotFound, "there is no such context"}
	}
	if len(c.all)+len(c.making) >= maxContexts {
		return nil, &contextError{http.StatusTooManyRequests, guestapi.CodeResourceExhausted, fmt.Sprintf("there are %d contexts, which is the maximum", maxContexts)}
	}
	x := &liveContext{Name: req.ContextID, Language: req.Language, Cwd: req.Cwd, turn: make(chan struct{}, 1)}
	if x.Cwd == "" && !c.b.d.opts.Bare {
		x.Cwd = sandbox.WorkDir
	}
	asked := map[string]string{"language": x.Language}
	if x.Cwd != "" {
		asked["cwd"] = x.Cwd
	}
	var made guestapi.Context
	over := make(chan struct{})
	c.making[x.Name] = over
	c.mu.Unlock()
	err := c.call(ctx, http.MethodPost, guestapi.PathContexts, asked, &made)
	c.mu.Lock()
	delete(c.making, x.Name)
	close(over)
	if err != nil {
		return nil, err
	}
	if made.ID == "" || len(made.ID) > 200 {
		return nil, &contextError{http.StatusBadGateway, guestapi.CodeUnavailable, "E2B's code interpreter returned no context"}
	}
	x.ID = made.ID
	c.all[x.Name] = x
	return x, c.save()
}

// end removes or restarts a context.
func (c *contexts) end(ctx context.Context, name string, restart bool) error {
	c.mu.Lock()
	x := c.all[name]
	c.mu.Unlock()
	if x == nil {
		return &contextError{http.StatusNotFound, guestapi.CodeNotFound, "there is no such context"}
	}
	if restart {
		return c.restart(ctx, x)
	}
	err := c.call(ctx, http.MethodDelete, guestapi.PathContexts+"/"+url.PathEscape(x.ID), nil, nil)
	if e, ok := errors.AsType[*contextError](err); err != nil && (!ok || e.status != http.StatusNotFound) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, name)
	return c.save()
}

func (c *contexts) restart(ctx context.Context, x *liveContext) error {
	return c.call(ctx, http.MethodPost, guestapi.PathContexts+"/"+url.PathEscape(x.ID)+"/restart", struct{}{}, nil)
}

// request sends a request to the code interpreter. Answers with an error status
// become errors.
func (c *contexts) request(ctx context.Context, method, path string, in any) (*http.Response, error) {
	body, err := plane.BodyOf(in)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://interpreter"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.b.roundTrip(req, interpreterPort)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return nil, err
	}
	e := &contextError{resp.StatusCode, guestapi.CodeUnavailable, "E2B's code interpreter answers: " + plane.MessageOf(text)}
	switch resp.StatusCode {
	case http.StatusNotFound:
		e.code = guestapi.CodeNotFound
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		e.code = guestapi.CodeInvalidArgument
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		// E2B gives this answer for a port without a listener.
		if err := c.b.health(ctx); err != nil {
			return nil, err
		}
		e = &contextError{http.StatusNotImplemented, guestapi.CodeUnimplemented,
			"the template has no code interpreter: use a template that is built on code-interpreter-v1, or run code with stateless set (" + plane.MessageOf(text) + ")"}
	}
	return nil, e
}

// call is request for a short answer, which it decodes to out unless out is nil.
func (c *contexts) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, contextTime)
	defer cancel()
	resp, err := c.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxContextsIn))
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return err
}

// decode decodes the body of the host's request.
func decode(r *http.Request, into any) error {
	if err := json.NewDecoder(io.LimitReader(r.Body, maxCode)).Decode(into); err != nil {
		return &contextError{http.StatusBadRequest, guestapi.CodeInvalidArgument, "the request is not JSON"}
	}
	return nil
}

func (c *contexts) interrupt(r *http.Request, tag string) error {
	var req guestapi.InterruptRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	c.mu.Lock()
	run := c.runs[tag]
	c.mu.Unlock()
	if run == nil {
		return &contextError{http.StatusNotFound, guestapi.CodeNotFound, "there is no such run"}
	}
	select {
	case run.stop <- req:
	default: // an interrupt is already pending
	}
	return nil
}

// execute runs code. The answer begins before the run's turn.
func (c *contexts) execute(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.ExecuteRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	x, err := c.find(r.Context(), &req)
	if err != nil {
		return err
	}
	run := &liveRun{stop: make(chan guestapi.InterruptRequest, 1)}
	if req.Tag != "" {
		c.mu.Lock()
		taken := c.runs[req.Tag] != nil
		if !taken {
			c.runs[req.Tag] = run
		}
		c.mu.Unlock()
		if taken {
			return &contextError{http.StatusConflict, guestapi.CodeAlreadyExists, "a run with this tag exists"}
		}
		defer func() {
			c.mu.Lock()
			delete(c.runs, req.Tag)
			c.mu.Unlock()
		}()
	}
	w.Header().Set("Content-Type", guestapi.ContentTypeEvents)
	w.WriteHeader(http.StatusOK)
	out := &eventWriter{w: w, rc: http.NewResponseController(w)}
	out.flush()
	end := guestapi.ExecutionEnd{Status: guestapi.EndInterrupted, Stopped: true}
	select {
	case x.turn <- struct{}{}:
		end = c.turn(r.Context(), x, run, &req, out)
		<-x.turn
	case <-run.stop:
	case <-r.Context().Done():
		return nil
	}
	if !out.ended {
		out.event(&guestapi.ExecuteEvent{Type: guestapi.ExecuteEnd, End: &end})
	}
	return nil
}

// An eventWriter sends events to the host.
type eventWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	ended bool // the interpreter sent the last event
}

func (o *eventWriter) flush() { _ = o.rc.Flush() } // a lost client ends the request

func (o *eventWriter) line(line []byte) {
	_, _ = o.w.Write(line)
	o.flush()
}

func (o *eventWriter) event(e *guestapi.ExecuteEvent) {
	text, err := json.Marshal(e)
	if err == nil {
		o.line(append(text, '\n'))
	}
}

// turn runs code when its turn has come, and returns the outcome.
func (c *contexts) turn(ctx context.Context, x *liveContext, run *liveRun, req *guestapi.ExecuteRequest, out *eventWriter) guestapi.ExecutionEnd {
	c.mu.Lock()
	x.runs++
	c.mu.Unlock()
	env := map[string]string{}
	maps.Copy(env, req.Env)
	maps.Copy(env, req.EnvVars)
	going, leave := context.WithCancel(ctx)
	defer leave()
	events := make(chan []byte)
	over := make(chan error, 1)
	go func() {
		over <- c.stream(going, map[string]any{"code": req.Code, "context_id": x.ID, "env_vars": env}, func(line []byte) {
			select {
			case events <- line:
			case <-going.Done():
			}
		})
	}()
	var due <-chan time.Time
	if req.TimeoutMillis > 0 {
		due = time.After(time.Duration(req.TimeoutMillis) * time.Millisecond)
	}
	grace := time.Duration(req.GraceMillis) * time.Millisecond
	end := guestapi.ExecutionEnd{Status: guestapi.EndOK}
	for {
		select {
		case line := <-events:
			e, err := guestapi.DecodeExecuteEvent(line)
			if err != nil || e == nil {
				continue // an event that only E2B has
			}
			switch e.Type {
			case guestapi.ExecuteError:
				end.Status = guestapi.EndError
				if e.Error.Name == "UnexpectedEndOfExecution" || e.Error.Name == "ContextRestarted" {
					end = guestapi.ExecutionEnd{Status: guestapi.EndDied, StateLost: true, Cause: "the interpreter ended: " + e.Error.Value}
				}
			case guestapi.ExecuteEnd:
				out.ended = true
			}
			out.line(line)
		case err := <-over:
			switch e, ok := errors.AsType[*contextError](err); {
			case err == nil || out.ended:
			case ok && e.status == http.StatusNotFound:
				c.mu.Lock()
				delete(c.all, x.Name) // the next run makes a new context
				err := c.save()
				c.mu.Unlock()
				end = guestapi.ExecutionEnd{Status: guestapi.EndDied, StateLost: true, Cause: "E2B no longer has the context"}
				if err != nil {
					end.Cause += "; " + err.Error()
				}
			default:
				end = guestapi.ExecutionEnd{Status: guestapi.EndDied, Cause: "the stream from E2B's code interpreter broke, and its later output is lost: " + err.Error()}
			}
			return end
		case ask := <-run.stop:
			leave()
			if ask.GraceMillis > 0 {
				grace = time.Duration(ask.GraceMillis) * time.Millisecond
			}
			return c.interrupted(ctx, x, guestapi.ExecutionEnd{Status: guestapi.EndInterrupted, Stopped: true}, grace, ask.Kill)
		case <-due:
			leave()
			return c.interrupted(ctx, x, guestapi.ExecutionEnd{Status: guestapi.EndInterrupted, TimedOut: true}, grace, false)
		case <-ctx.Done():
			leave()
			// The client has left, but the next run needs a usable context.
			return c.interrupted(c.b.ctx, x, guestapi.ExecutionEnd{Status: guestapi.EndInterrupted, Left: true}, grace, false)
		}
	}
}

// stream runs code and calls each with each line of the answer.
func (c *contexts) stream(ctx context.Context, in any, each func(line []byte)) error {
	resp, err := c.request(ctx, http.MethodPost, guestapi.PathExecute, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
	for lines.Scan() {
		if line := lines.Bytes(); len(line) > 0 {
			each(append(bytes.Clone(line), '\n'))
		}
	}
	return lines.Err() // a broken stream is not an end
}

// nothing returns code that does nothing, in most languages.
func nothing(name string) string {
	if l, ok := language.Find(name); ok && l.Context != nil {
		return l.Context.Nothing
	}
	return ";"
}

// interrupted makes sure that an abandoned run has ended. If the context runs
// empty code within grace, it is free and has kept its variables; otherwise it
// is restarted.
func (c *contexts) interrupted(ctx context.Context, x *liveContext, end guestapi.ExecutionEnd, grace time.Duration, kill bool) guestapi.ExecutionEnd {
	if grace <= 0 {
		grace = guestapi.DefaultGrace
	}
	if !kill {
		probe, cancel := context.WithTimeout(ctx, min(grace, maxGrace))
		defer cancel()
		if c.stream(probe, map[string]any{"code": nothing(x.Language), "context_id": x.ID}, func([]byte) {}) == nil {
			return end
		}
	}
	end.Status, end.StateLost, end.Killed = guestapi.EndDied, true, true
	if err := c.restart(ctx, x); err != nil {
		end.Cause = "the context could not be restarted: " + err.Error()
	}
	return end
}
