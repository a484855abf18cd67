package dashboard

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// pollEvery is how often a stream of events looks for changes. aliveEvery is the
// longest time without an event.
const (
	pollEvery  = 2 * time.Second
	aliveEvery = 15 * time.Second
)

// follow sends the live part of a page whenever it has changed, until the client goes,
// the object ends, or view reports that it is over. view may itself wait for a change.
// An error before the first event is the answer.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, name string, every time.Duration, view func(context.Context) (v any, over bool, err error)) error {
	var last []byte
	ctx, rc := r.Context(), http.NewResponseController(w)
	began, sent := false, s.opts.Now()
	send := func(event string, data []byte) error {
		if !began {
			began = true
			protect(w, r)
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("X-Accel-Buffering", "no") // for a proxy in front of the server
			w.WriteHeader(http.StatusOK)
		}
		var b bytes.Buffer
		b.WriteString("event: " + event + "\n")
		for line := range bytes.Lines(data) {
			b.WriteString("data: ")
			b.Write(bytes.TrimRight(line, "\r\n"))
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
		sent = s.opts.Now()
		if _, err := w.Write(b.Bytes()); err != nil {
			return err
		}
		return rc.Flush()
	}
	for {
		v, over, err := view(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var page bytes.Buffer
		if err == nil {
			err = templates.ExecuteTemplate(&page, name, v)
		}
		switch {
		case err != nil && !began:
			return err
		case errors.Is(err, sandbox.NotFound):
			_ = send("gone", nil) // the stream ends in any case
			return nil
		case err != nil: // it may pass
			s.opts.Log.Debug("follow a page", "page", name, "error", err)
		case !bytes.Equal(page.Bytes(), last):
			last = bytes.Clone(page.Bytes())
			err = send("page", last)
		case s.opts.Now().Sub(sent) >= aliveEvery:
			err = send("alive", nil)
		}
		if began && err != nil && page.Len() > 0 {
			return nil // the client is gone
		}
		if over {
			_ = send("over", nil) // likewise
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}
