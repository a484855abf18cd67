package mcpserver

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

type fakeRun struct {
	owner sandbox.Principal

	language, program string

	stop chan struct{}
	once sync.Once
	done chan struct{}

	mu      sync.Mutex
	run     sandbox.Run
	results sandbox.Results
	log     map[sandbox.StreamName][]byte
	gap     sandbox.Gap // in log
	order   []chunk
	changed chan struct{} // closed and replaced when there is more
	input   []byte
	eof     bool
	keep    bool
	undone  bool // if it fails
}

// play runs the script.
func (r *fakeRun) play(script string) {
	verdict, code := sandbox.Verdict{Code: sandbox.OK}, new(int)
steps:
	for step := range strings.Lines(script) {
		op, arg, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch op {
		case "out":
			r.write(sandbox.Stdout, arg+"\n")
		case "err":
			r.write(sandbox.Stderr, arg+"\n")
		case "repeat":
			n, text, _ := strings.Cut(arg, " ")
			count, _ := strconv.Atoi(n)
			for i := range count {
				r.write(sandbox.Stdout, strconv.Itoa(i)+" "+text+"\n")
			}
		case "sleep":
			d, _ := time.ParseDuration(arg)
			select {
			case <-time.After(d):
			case <-r.stop:
				verdict, code = sandbox.Verdict{Code: sandbox.Cancelled, Cause: "the caller stopped it"}, nil
				break steps
			}
		case "read":
			line, ok := r.read()
			if !ok {
				verdict, code = sandbox.Verdict{Code: sandbox.Cancelled, Cause: "the caller stopped it"}, nil
				break steps
			}
			r.write(sandbox.Stdout, line)
		case "show":
			data := map[string]json.RawMessage{}
			for form := range strings.SplitSeq(arg, "|") {
				mime, value, _ := strings.Cut(form, " ")
				data[mime] = json.RawMessage(value)
			}
			r.show(data, false)
		case "value":
			text, _ := json.Marshal(arg)
			r.show(map[string]json.RawMessage{"text/plain": text}, true)
		case "ask":
			r.write(sandbox.Stdout, arg)
			r.setInput(&sandbox.InputRequest{Prompt: arg})
			line, _ := r.read()
			r.setInput(nil)
			r.write(sandbox.Stdout, line)
		case "raise":
			r.write(sandbox.Stderr, "Traceback: "+arg+"\n")
			r.mu.Lock()
			r.results.Error = &sandbox.RunError{Name: "Error", Value: arg, Traceback: "Traceback: " + arg, Line: 2, Source: "f()"}
			r.mu.Unlock()
			verdict, code = sandbox.Verdict{Code: sandbox.Failed, Cause: "Error: " + arg + ", in line 2"}, nil
			break steps
		case "undefined":
			r.mu.Lock()
			r.results.Error = &sandbox.RunError{Name: "NameError", Value: "name '" + arg + "' is not defined", Line: 1}
			r.mu.Unlock()
			verdict, code = sandbox.Verdict{Code: sandbox.Failed, Cause: "NameError: name '" + arg + "' is not defined, in line 1"}, nil
			break steps
		case "exit":
			*code, _ = strconv.Atoi(arg)
			if *code != 0 {
				verdict = sandbox.Verdict{Code: sandbox.Failed, Cause: "it exited with status " + arg, NextStep: "read stderr"}
			}
			break steps
		case "verdict":
			verdict, code = sandbox.Verdict{Code: sandbox.VerdictCode(arg), Cause: "as the script says"}, nil
			break steps
		}
	}
	r.mu.Lock()
	r.run.Status, r.run.Verdict, r.run.ExitCode, r.run.Ended = sandbox.RunFinished, verdict, code, time.Now()
	if r.undone && verdict.Code != sandbox.OK {
		r.run.Rollback = &sandbox.Rollback{Done: true, Workspace: verdict.Code == sandbox.Timeout}
		if verdict.Code == sandbox.SandboxLost {
			r.run.Rollback = &sandbox.Rollback{Cause: "the sandbox stopped"}
		}
	}
	r.run.Usage = sandbox.Usage{CPUMillis: 7, PeakMemoryBytes: 1 << 20}
	r.signal()
	r.mu.Unlock()
	close(r.done)
}

func (r *fakeRun) write(s sandbox.StreamName, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log[s] = append(r.log[s], text...)
	r.order = append(r.order, chunk{s, []byte(text)})
	r.signal()
}

func (r *fakeRun) show(data map[string]json.RawMessage, main bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results.Results = append(r.results.Results, sandbox.Result{
		Data: data, Main: main, Stdout: int64(len(r.log[sandbox.Stdout])), Stderr: int64(len(r.log[sandbox.Stderr])),
	})
}

func (r *fakeRun) setInput(in *sandbox.InputRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Input = in
	r.signal()
}

// signal wakes those who wait; r.mu is held.
func (r *fakeRun) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *fakeRun) read() (string, bool) {
	for {
		r.mu.Lock()
		i := bytes.IndexByte(r.input, '\n') + 1
		if i == 0 && r.eof {
			i = len(r.input)
		}
		if i > 0 || r.eof {
			line := string(r.input[:i])
			r.input = r.input[i:]
			r.mu.Unlock()
			return line, true
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-r.stop:
			return "", false
		}
	}
}

func (r *fakeRun) get() sandbox.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run
}
