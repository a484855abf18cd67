package guestapi

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Event is one event of a program: of a process, or of code in a context.
// One of its fields says what happened; Late is beside Data or Result.
//
// A guest sends the events of processes and of contexts in two forms of E2B's
// protocol, [ProcessEvent] and [ExecuteEvent]. The client turns both into Event.
type Event struct {
	// Data is output.
	Data *DataEvent
	// Result is a value that code in a context showed.
	Result *sandbox.Result
	// Late is set for output of an earlier run in the context.
	Late *Late
	// Turn reports that the turn of the code has come.
	Turn *Turn
	// Input reports that the code waits for input.
	Input *sandbox.InputRequest
	// Error is the exception that ended the code.
	Error *sandbox.RunError
	// Notice is a message for people, such as the loss of a context's state.
	Notice string
	// End is the last event.
	End *End
}

// Late describes output of an earlier run in a context, or of a program that an
// earlier run left behind. Run is that run, or 0 if it is not known. Dropped is
// the number of bytes that were dropped before the output.
type Late struct {
	Run     int
	Dropped int64
}

// A Turn numbers the runs of an interpreter, from 1.
type Turn struct{ Count int }

// An EndStatus is the kind of an end.
type EndStatus string

// The kinds of ends. An [ExecutionEnd] has all except EndNotRun.
const (
	EndOK          EndStatus = "ok"          // a process exited with 0, or code came to its end
	EndError       EndStatus = "error"       // an exception ended code in a context
	EndExit        EndStatus = "exit"        // with another status than 0
	EndInterrupted EndStatus = "interrupted" // code was interrupted, and its state was kept
	EndDied        EndStatus = "died"        // a signal killed the process, or the interpreter ended
	EndNotRun      EndStatus = "not-run"     // the process could not be started or waited for
)

// An End says how a program ended: a process, or code in a context.
type End struct {
	Status EndStatus
	// ExitCode is nil for a program that did not exit by itself.
	ExitCode *int
	// Text is the guest's text for Status, such as "exit status 3", "signal: killed"
	// or "ok".
	Text string
	// Cause is the reason of EndNotRun, or a better cause of EndDied than the
	// signal. Otherwise it may be empty.
	Cause string
	// Detail has the signal, the reached limits and the usage. They are 0 if the
	// guest does not report them.
	Detail EndDetail

	// TimedOut, Stopped and Left mean that the guest ended the program: at its
	// timeout, on request, or because its caller left.
	TimedOut, Stopped, Left bool

	// Context is set for code in a context. Killed then means that it did not end
	// when it was interrupted, and StateLost that its variables are gone. Children
	// counts live processes that the context started.
	Context, Killed, StateLost bool
	Children                   int
}

// Code returns the status that the program exited with, or -1 if it did not exit
// by itself.
func (e End) Code() int {
	if e.ExitCode == nil {
		return -1
	}
	return *e.ExitCode
}

// endOfProcess returns the end that a guest reports of a process.
func endOfProcess(ev *EndEvent) *End {
	end := &End{Status: EndDied, Text: cleanText(ev.Status)}
	if ev.Detail != nil {
		end.Detail, end.TimedOut = *ev.Detail, ev.Detail.TimedOut
	}
	switch {
	case ev.Error != "":
		end.Status, end.Cause = EndNotRun, cleanText(ev.Error)
	case ev.Exited:
		code := int(ev.ExitCode)
		end.Status, end.ExitCode = EndExit, &code
		if code == 0 {
			end.Status = EndOK
		}
	}
	return end
}

// endOfCode returns the end that a guest reports of code in a context. A status
// that this version does not know is EndError.
func endOfCode(x *ExecutionEnd) *End {
	end := &End{
		Status: x.Status, ExitCode: x.ExitCode, Text: cleanText(string(x.Status)), Cause: cleanText(x.Cause), Detail: x.Detail,
		TimedOut: x.TimedOut, Stopped: x.Stopped, Left: x.Left,
		Context: true, Killed: x.Killed, StateLost: x.StateLost, Children: x.Children,
	}
	if end.Detail.Signal == 0 {
		end.Detail.Signal = x.Signal
	}
	switch x.Status {
	case EndOK, EndError, EndExit, EndInterrupted, EndDied:
	default:
		end.Status = EndError
	}
	return end
}

// ofProcess returns an event of a process, or nil for one that callers do not see.
func ofProcess(ev *ProcessEvent) *Event {
	switch {
	case ev.Data != nil:
		return &Event{Data: ev.Data}
	case ev.End != nil:
		return &Event{End: endOfProcess(ev.End)}
	}
	return nil
}

// ofCode returns an event of code in a context, or nil for one that callers do
// not see.
func ofCode(ev *ExecuteEvent) *Event {
	switch ev.Type {
	case ExecuteCount:
		return &Event{Turn: &Turn{ev.ExecutionCount}}
	case ExecuteStdout:
		return &Event{Data: &DataEvent{Stdout: []byte(ev.Text)}}
	case ExecuteStderr:
		return &Event{Data: &DataEvent{Stderr: []byte(ev.Text)}}
	case ExecuteResult:
		return &Event{Result: ev.Result}
	case ExecuteLate:
		late := &Late{Run: ev.Run, Dropped: ev.Dropped}
		switch {
		case ev.Result != nil:
			return &Event{Result: ev.Result, Late: late}
		case ev.Stream == Stderr:
			return &Event{Data: &DataEvent{Stderr: []byte(ev.Text)}, Late: late}
		}
		return &Event{Data: &DataEvent{Stdout: []byte(ev.Text)}, Late: late}
	case ExecuteInput:
		return &Event{Input: &sandbox.InputRequest{Prompt: ev.Prompt, Password: ev.Password}}
	case ExecuteNotice:
		if ev.Text != "" {
			return &Event{Notice: ev.Text}
		}
	case ExecuteError:
		e := sandbox.RunError(*ev.Error)
		return &Event{Error: &e}
	case ExecuteEnd:
		return &Event{End: endOfCode(ev.End)}
	}
	return nil
}

// An Events is the stream of a program's events: of a process, or of code in a
// context. It is for one reader. Close may be called from another goroutine.
type Events struct {
	source eventSource
	pid    uint32
	ended  bool
}

// An eventSource is the stream of one of the two forms of events.
type eventSource interface {
	// next returns the next event, or nil for an event that callers do not see.
	next() (*Event, error)
	// finish reads the rest of the stream after its last event, and closes it.
	finish()
	close() error
}

// PID returns the process's pid in the sandbox, or 0 for code in a context.
func (s *Events) PID() uint32 { return s.pid }

// Next returns the next event. After End it returns io.EOF. If the stream breaks
// before End, the error is of kind Unavailable. For code in a context, it may wrap
// ErrLongEvent.
func (s *Events) Next() (*Event, error) {
	for !s.ended {
		ev, err := s.source.next()
		if err != nil {
			return nil, err
		}
		if ev == nil {
			continue
		}
		if ev.End != nil {
			s.ended = true
			s.source.finish()
		}
		return ev, nil
	}
	return nil, io.EOF
}

// Close ends the stream. A process goes on, and so does a kept run in a context.
// Another run in a context is interrupted, unless it has ended.
func (s *Events) Close() error { return s.source.close() }

// A LineRoom returns when there is room for one event of any size. The caller
// calls give once.
type LineRoom func(ctx context.Context) (give func(), err error)
