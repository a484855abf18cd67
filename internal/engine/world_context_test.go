package engine

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A worldExec is a run in a context of a worldBox. Its code is a script of one
// word a line, and what follows the word:
//
//	out TEXT, err TEXT   prints a line
//	late TEXT            prints a line of an earlier run
//	show TEXT, value TEXT  a result, of display and of the last expression
//	picture JSON         a picture, and its previews
//	notice TEXT          what befell the context before
//	ask PROMPT           asks for a line of input, and prints it
//	raise TEXT           an exception ends it
//	fail N               N exceptions, with sources of 64 KiB, do not end it
//	overlong             an event that the client refuses
//	leave N              the program ends with status N, as one of a shell does
//	die N                the interpreter exits with N
//	kill N               a signal kills it
//	wait                 goes on until it is interrupted
//	hang                 goes on until it is killed
//	recount DURATION     says so often that its turn has come, and never ends by
//	                     itself or by its timeout
//	silent               never says that its turn has come, likewise
type worldExec struct {
	req    *guestapi.ExecuteRequest
	events []*guestapi.Event // that no stream took
	script []string
	waits  string // the word that it waits in
	ended  bool
}

func (g *worldGuest) Execute(ctx context.Context, _ string, req *guestapi.ExecuteRequest, _ guestapi.LineRoom) (guestlink.Events, error) {
	b := g.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	if req.Language == b.lacks {
		return nil, sandbox.Errorf(sandbox.NotFound, "%s is not in this sandbox", b.lacks)
	}
	x := &worldExec{req: req, script: strings.Split(req.Code, "\n")}
	b.execs[req.Tag] = x
	if word, every, _ := strings.Cut(req.Code, " "); word == "recount" || word == "silent" {
		x.waits = "hang"
		if word == "recount" {
			d, err := time.ParseDuration(every)
			if err != nil {
				return nil, sandbox.Errorf(sandbox.Invalid, "%w", err)
			}
			b.recountLocked(x, d)
		}
		return g.execution(ctx, x), nil
	}
	x.say(&guestapi.Event{Turn: &guestapi.Turn{Count: 1}})
	b.stepLocked(x)
	if d := req.TimeoutMillis; d > 0 {
		time.AfterFunc(time.Duration(d)*time.Millisecond, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.interruptLocked(x, false, func(end *guestapi.End) { end.TimedOut = true })
		})
	}
	return g.execution(ctx, x), nil
}

// recountLocked says again and again that the turn of x has come. b.mu is held.
func (b *worldBox) recountLocked(x *worldExec, every time.Duration) {
	x.say(&guestapi.Event{Turn: &guestapi.Turn{Count: 1}})
	b.changed.Broadcast()
	time.AfterFunc(every, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !x.ended && !b.dead {
			b.recountLocked(x, every)
		}
	})
}

func (x *worldExec) say(ev *guestapi.Event) { x.events = append(x.events, ev) }

// stepLocked runs the script until it waits or ends. b.mu is held.
func (b *worldBox) stepLocked(x *worldExec) {
	defer b.changed.Broadcast()
	for len(x.script) > 0 && !x.ended {
		word, rest, _ := strings.Cut(x.script[0], " ")
		x.script = x.script[1:]
		text, _ := json.Marshal(rest)
		data := map[string]json.RawMessage{"text/plain": text, "bad": text, "image/png": json.RawMessage("1")}
		switch word {
		case "out", "err":
			line := []byte(rest + "\n")
			x.say(&guestapi.Event{Data: map[string]*guestapi.DataEvent{"out": {Stdout: line}, "err": {Stderr: line}}[word]})
		case "late":
			x.say(&guestapi.Event{Data: &guestapi.DataEvent{Stdout: []byte(rest + "\n")}, Late: &guestapi.Late{Run: 1}})
		case "show", "value":
			x.say(&guestapi.Event{Result: &sandbox.Result{Data: data, Main: word == "value"}})
		case "picture": // and what the guest says of it
			res := &sandbox.Result{Data: map[string]json.RawMessage{"image/png": json.RawMessage(`"iVBORw0KGgo="`)}}
			if err := json.Unmarshal([]byte(rest), &res.Previews); err != nil {
				panic(err)
			}
			x.say(&guestapi.Event{Result: res})
		case "notice":
			x.say(&guestapi.Event{Notice: rest})
		case "raise":
			x.say(&guestapi.Event{Error: &sandbox.RunError{Name: "Error", Value: rest, Traceback: "traceback of " + rest, Line: 2}})
			b.endExec(x, guestapi.End{Status: guestapi.EndError})
		case "fail":
			n, err := strconv.Atoi(rest)
			if err != nil {
				panic(err)
			}
			for i := range n {
				x.say(&guestapi.Event{Error: &sandbox.RunError{
					Name: "Error", Value: strconv.Itoa(i), Traceback: "t\n", Source: strings.Repeat("<", runlog.MaxErrorText),
				}})
			}
		case "overlong":
			x.say(&guestapi.Event{})
		case "leave":
			code, err := strconv.Atoi(rest)
			if err != nil {
				panic(err)
			}
			b.endExec(x, guestapi.End{Status: guestapi.EndExit, ExitCode: &code})
		case "die":
			code := len(rest)
			b.endExec(x, guestapi.End{Status: guestapi.EndDied, StateLost: true, ExitCode: &code, Cause: "the interpreter exited"})
		case "kill":
			b.endExec(x, guestapi.End{Status: guestapi.EndDied, StateLost: true, Detail: guestapi.EndDetail{Signal: 9, MemoryKill: rest == "memory"}})
		case "ask":
			x.say(&guestapi.Event{Input: &sandbox.InputRequest{Prompt: rest}})
			x.waits = word
			return
		case "wait", "hang":
			x.waits = word
			return
		}
	}
	b.endExec(x, guestapi.End{Status: guestapi.EndOK})
}

func (b *worldBox) endExec(x *worldExec, end guestapi.End) {
	if x.ended {
		return
	}
	x.ended = true
	end.Context = true
	x.say(&guestapi.Event{End: &end})
	b.changed.Broadcast()
}

// interruptLocked interrupts a run, and kills it after the grace. b.mu is held.
func (b *worldBox) interruptLocked(x *worldExec, kill bool, why func(*guestapi.End)) {
	if b.deaf {
		return
	}
	end := guestapi.End{Status: guestapi.EndInterrupted}
	if x.waits == "hang" {
		end = guestapi.End{Status: guestapi.EndDied, StateLost: true, Killed: true, Detail: guestapi.EndDetail{Signal: 9}}
		if !kill {
			time.AfterFunc(run.InterruptGrace, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				why(&end)
				b.endExec(x, end)
			})
			return
		}
	}
	why(&end)
	b.endExec(x, end)
}

func (g *worldGuest) exec(tag string) (*worldExec, error) {
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	if x := g.b.execs[tag]; x != nil {
		return x, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "no such run")
}

func (g *worldGuest) ConnectExecution(ctx context.Context, tag string, _ guestapi.LineRoom) (guestlink.Events, error) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	x, err := g.exec(tag)
	if err != nil {
		return nil, err
	}
	return g.execution(ctx, x), nil
}

func (g *worldGuest) InterruptExecution(ctx context.Context, tag string, req *guestapi.InterruptRequest) error {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	x, err := g.exec(tag)
	if err == nil {
		g.b.interruptLocked(x, req.Kill, func(end *guestapi.End) { end.Stopped = true })
	}
	return err
}

func (g *worldGuest) ExecutionInput(_ context.Context, tag string, req *guestapi.InputRequest) error {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	x, err := g.exec(tag)
	if err != nil {
		return err
	}
	if !x.req.Stdin || x.waits != "ask" {
		return sandbox.Errorf(sandbox.Conflict, "the run takes no input")
	}
	x.waits = ""
	x.say(&guestapi.Event{Data: &guestapi.DataEvent{Stdout: []byte(req.Text)}})
	g.b.stepLocked(x)
	return nil
}

func (g *worldGuest) Contexts(context.Context) ([]guestapi.Context, error) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	return []guestapi.Context{{ID: "default-python", Language: "python", Runs: len(g.b.execs)}, {ID: "odd", Language: "bash"}}, g.checkLocked()
}

func (g *worldGuest) RestartContext(_ context.Context, id string) error {
	return g.endContext("restart", id)
}
func (g *worldGuest) RemoveContext(_ context.Context, id string) error {
	return g.endContext("remove", id)
}

func (g *worldGuest) endContext(what, id string) error {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if id != "default-python" {
		return sandbox.Errorf(sandbox.NotFound, "no such context")
	}
	g.b.ended = append(g.b.ended, what+" "+id)
	return g.checkLocked()
}

type worldExecution struct {
	g   *worldGuest
	ctx context.Context
	x   *worldExec
}

func (g *worldGuest) execution(ctx context.Context, x *worldExec) *worldExecution {
	wake := func() {
		g.b.mu.Lock()
		defer g.b.mu.Unlock()
		g.b.changed.Broadcast()
	}
	context.AfterFunc(ctx, wake)
	context.AfterFunc(g.ctx, wake)
	return &worldExecution{g, ctx, x}
}

func (s *worldExecution) Next() (*guestapi.Event, error) {
	b := s.g.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.dead || s.ctx.Err() != nil || s.g.ctx.Err() != nil {
			return nil, errBroken
		}
		if len(s.x.events) > 0 {
			ev := s.x.events[0]
			s.x.events = s.x.events[1:]
			if *ev == (guestapi.Event{}) {
				return nil, sandbox.Errorf(sandbox.Unavailable, "execute code: %w", guestapi.ErrLongEvent)
			}
			if ev.End != nil {
				delete(b.execs, s.x.req.Tag)
			}
			return ev, nil
		}
		b.changed.Wait()
	}
}

func (s *worldExecution) Close() error { return nil }
