package mcpserver

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// progressEvery is how often a waiting client hears of its run.
const progressEvery = time.Second

// lastLine keeps the last line of output that is not blank. It keeps no more
// than maxLine bytes of it, however long the line.
type lastLine struct {
	mu   sync.Mutex
	line []byte // complete or not
	next bool   // the next byte begins a new line
}

const maxLine = 200

// add takes in more output. A carriage return begins a new line: that is how
// progress bars are drawn.
func (l *lastLine) add(data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for part := range bytes.FieldsFuncSeq(data, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if len(bytes.TrimSpace(part)) == 0 {
			continue
		}
		// All but the first part follow a line end, and so does the first
		// if the data begins with one.
		if l.next || &part[0] != &data[0] {
			l.line = l.line[:0]
		}
		l.next = false
		l.line = append(l.line, part[:min(len(part), maxLine-len(l.line))]...)
	}
	if n := len(data); n > 0 && (data[n-1] == '\n' || data[n-1] == '\r') {
		l.next = true
	}
}

func (l *lastLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(l.line), "\uFFFD"))
}

// reportProgress tells the client, once a second, that its run goes on and
// what it said last, if the client asked to be told. It stops when ctx ends or
// the function it returns is called, which waits for the last report.
func (s *Server) reportProgress(ctx context.Context, c call, runID string) (stop func()) {
	if c.req.Params.GetProgressToken() == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var last lastLine
	var wg sync.WaitGroup
	wg.Go(func() {
		// What Follow cannot give is missing from messages only.
		err := s.engine.Follow(ctx, c.principal, runID, func(_ sandbox.StreamName, data []byte) error {
			last.add(data)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			s.log.Warn("progress has no output", "run", runID, "error", err)
		}
	})
	wg.Go(func() {
		began := time.Now()
		s.tell(ctx, c, func() string {
			if message := last.String(); message != "" {
				return message
			}
			return fmt.Sprintf("running for %.0f s", time.Since(began).Seconds())
		})
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// reportFetch is reportProgress for the image of a new sandbox, which may have to
// be fetched: it returns what takes the news of that, nil if the client did not
// ask to be told.
func (s *Server) reportFetch(ctx context.Context, c call, image string) (progress func(sandbox.ImageProgress), stop func()) {
	if c.req.Params.GetProgressToken() == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var last atomic.Pointer[sandbox.ImageProgress]
	var wg sync.WaitGroup
	wg.Go(func() {
		s.tell(ctx, c, func() string {
			if p := last.Load(); p != nil {
				return p.Text(image)
			}
			return ""
		})
	})
	return func(p sandbox.ImageProgress) { last.Store(&p) }, func() {
		cancel()
		wg.Wait()
	}
}

// tell sends a message each second until ctx ends, but none that is empty. The
// progress is how long the call has taken, which can only grow.
func (s *Server) tell(ctx context.Context, c call, message func() string) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		text := message()
		if text == "" {
			continue
		}
		err := c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: c.req.Params.GetProgressToken(),
			Progress:      time.Since(c.began).Seconds(),
			Message:       text,
		})
		if err != nil {
			return // the client is gone, and the call with it
		}
	}
}
