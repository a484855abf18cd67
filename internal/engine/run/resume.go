package run

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Reopen returns a run that another process began. release ends its use of the
// sandbox. The caller must call Resume or Refuse.
func (s *Sandbox) Reopen(rec store.Run, release func()) *Run {
	r := &Run{in: s, set: s.set, input: rec.KeepsStdin, language: noLanguage, rec: rec, release: release, done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(r.set.ctx)
	r.room = runlog.NewRoom(r.set.opts.RunningLogs, rec.Principal)
	if rec.Service != nil {
		r.reopenService()
	}
	log, err := runlog.Reopen(r.Files(), r.logSize(rec.Service != nil), r.room)
	if rec.Context == nil {
		r.codeDir = CodeDir + "/" + rec.ID
		r.results = runlog.NewResults(r.Files(), r.room)
	} else {
		r.language = rec.Context.Language
		if resumeErr := r.resumeExecution(); err == nil {
			err = resumeErr
		}
	}
	if err != nil {
		r.set.opts.Log.Error("reopen log", "run", rec.ID, "error", err)
		log = runlog.New(r.Files(), r.logSize(rec.Service != nil), r.room)
		r.broken = err
	}
	r.log = log
	if r.results != nil {
		r.room.Take(r.results.Kept())
	}
	return r
}

// Resume continues a run that Reopen returned.
func (r *Run) Resume() {
	r.resumeBaseline()
	r.publish()
	// The run may have ended in time, with its end event still to be read.
	// Otherwise the guest's own timer has ended it. How long a run in a context
	// waited for its turn is unknown, so its timeout counts from its start.
	due := r.rec.Started.Add(r.rec.Timeout)
	if r.x != nil {
		due = due.Add(InterruptGrace + Backstop)
	}
	left := max(due.Sub(r.set.opts.Now()), Backstop)
	r.setDeadline(left)
	r.watchReady()
	r.watchPorts()
	r.in.Life.BusyFor(r.ctx, left+Backstop)
	r.set.opts.Work(func() {
		stream, err := r.connect()
		if err != nil {
			stream = nil
			r.set.opts.Log.Warn("attach to run", "run", r.rec.ID, "error", err)
			if !errors.Is(err, sandbox.NotFound) {
				stream = r.reconnect()
			}
		}
		r.pump(stream)
	})
}
