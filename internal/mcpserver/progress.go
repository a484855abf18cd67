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

	"github.com/glovebox-dev/glovebox/internal/ansi"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// progressEvery is the interval of progress notifications.
const progressEvery = time.Second

// lastLine keeps the last line of output that is not blank, and at most maxLine
// bytes of it.
type lastLine struct {
	mu   sync.Mutex
	line []byte // the line may be incomplete
	next bool   // the next byte begins a new line
}

const maxLine = 200

// add processes more output. A carriage return also begins a new line, because
// progress bars use it.
func (l *lastLine) add(data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for part := range bytes.FieldsFuncSeq(data, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if len(bytes.TrimSpace(part)) == 0 {
			continue
		}
		// Every part but the first follows a line end. The first part does, too,
		// if the data begins with a line end.
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
	return strings.TrimSpace(strings.ToValidUTF8(string(ansi.Text(l.line)), "\uFFFD"))
}

// reportProgress notifies the client once a second, with the last line of the
// run's output. It does nothing if the client did not ask for progress. It ends
// with ctx or when stop is called; stop waits for the last notification.
func (s *Server) reportProgress(ctx context.Context, c call, runID string) (stop func()) {
	if transport.ProgressToken(c.req) == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var last lastLine
	var wg sync.WaitGroup
	wg.Go(func() {
		// An error of Follow is not fatal: the notifications only lack the
		// output.
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

// reportFetch does the same as reportProgress while the image of a new sandbox is
// fetched. It returns the callback that receives the fetch's progress; the
// callback is nil if the client did not ask for progress.
func (s *Server) reportFetch(ctx context.Context, c call, image string) (progress func(sandbox.ImageProgress), stop func()) {
	if transport.ProgressToken(c.req) == nil {
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

// tell sends a message each second until ctx ends; it skips empty messages. The
// progress value is the duration of the call in seconds, because the protocol
// requires a value that grows.
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
			ProgressToken: transport.ProgressToken(c.req),
			Progress:      time.Since(c.began).Seconds(),
			Message:       text,
		})
		if err != nil {
			return // the client is gone, so the call ends, too
		}
	}
}
