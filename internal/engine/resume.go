package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// resumeRun continues a run that another process began.
func (b *liveSandbox) resumeRun(rec store.Run) {
	r := &run{b: b, input: rec.KeepsStdin, language: noLanguage, rec: rec, done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(b.e.ctx)
	r.room = runlog.NewRoom(b.e.runningLogs, rec.Principal)
	log, err := runlog.Reopen(r.files(), b.e.opts.LogSize, r.room)
	if rec.Context == nil {
		r.codeDir = codeDir + "/" + rec.ID
		r.results = runlog.NewResults(r.files(), r.room)
	} else {
		r.language = rec.Context.Language
		if resumeErr := r.resumeExecution(); err == nil {
			err = resumeErr
		}
	}
	if err != nil {
		b.e.log.Error("reopen log", "run", rec.ID, "error", err)
		log = runlog.New(r.files(), b.e.opts.LogSize, r.room)
		r.broken = err
	}
	r.log = log
	if r.results != nil {
		r.room.Take(r.results.Kept())
	}
	b.mu.Lock()
	if !b.livesLocked() {
		b.mu.Unlock()
		r.cancel()
		r.closeLog()
		r.room.Release()
		return
	}
	b.uses++
	b.runs[rec.ID] = r
	b.mu.Unlock()
	r.release = sync.OnceFunc(b.release)
	r.resumeBaseline()
	r.publish()
	// The run may have ended in time, with its end event still to be read.
	// Otherwise the guest's own timer has ended it. How long a run in a context
	// waited for its turn is unknown, so its timeout counts from its start.
	due := rec.Started.Add(rec.Timeout)
	if r.x != nil {
		due = due.Add(interruptGrace + backstop)
	}
	r.setDeadline(max(due.Sub(b.e.now()), backstop))
	b.e.work(func() {
		stream, err := r.connect()
		if err != nil {
			stream = nil
			b.e.log.Warn("attach to run", "run", rec.ID, "error", err)
			if !errors.Is(err, sandbox.NotFound) {
				stream = r.reconnect()
			}
		}
		r.pump(stream)
	})
}
