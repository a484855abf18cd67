package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxLogRuns bounds the runs in the log of a sandbox. With this number, each run
// has a few kilobytes of the log.
const maxLogRuns = 200

// readLogsResource returns the output and the outcome of a sandbox's runs, in the
// order of their start. The runs share the size limit of the resource.
func (s *Server) readLogsResource(ctx context.Context, p sandbox.Principal, u *url.URL) ([]*mcp.ResourceContents, error) {
	// Ask for one more, to learn whether there are more.
	runs, err := s.engine.Runs(ctx, p, u.Host, maxLogRuns+1)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	if len(runs) > maxLogRuns {
		runs = runs[1:]
		fmt.Fprintf(&b, "Runs before the last %d are not shown.\n\n", maxLogRuns)
	}
	for _, run := range runs {
		out, err := s.engine.Output(ctx, p, run.ID, maxResourceOutput/len(runs))
		if errors.Is(err, sandbox.NotFound) {
			continue // the engine has dropped the run meanwhile
		}
		if err != nil {
			return nil, err
		}
		r := answer.NewRun(run, out, time.Now())
		r.Rename(s.renamer.text)
		fmt.Fprintf(&b, "%s\n%s\n\n", run.Started.UTC().Format(time.RFC3339), r.Entry())
	}
	if len(runs) == 0 {
		b.WriteString("no runs yet\n")
	}
	return []*mcp.ResourceContents{{Text: strings.TrimSuffix(b.String(), "\n")}}, nil
}

// logsState returns a text that changes when a sandbox's log changes. over
// reports that the log will not change any more.
func (s *Server) logsState(ctx context.Context, p sandbox.Principal, id string) (state string, over bool, err error) {
	sb, err := s.engine.Get(ctx, p, id)
	if err != nil {
		return "", false, err
	}
	runs, err := s.engine.Runs(ctx, p, id, maxLogRuns)
	if err != nil {
		return "", false, err
	}
	var b strings.Builder
	for _, run := range runs {
		fmt.Fprintf(&b, "%s %s", run.ID, run.Status)
		if run.Status == sandbox.RunFinished {
			continue
		}
		for _, stream := range []sandbox.StreamName{sandbox.Stdout, sandbox.Stderr} {
			_, total, err := s.engine.ReadOutput(ctx, p, run.ID, stream, 0, 0)
			if err != nil && !errors.Is(err, sandbox.NotFound) {
				return "", false, err
			}
			fmt.Fprintf(&b, " %d", total)
		}
	}
	return b.String(), sb.State == sandbox.Stopped, nil
}

// A fileWatch detects changes of a file without keeping its sandbox awake.
// Looking at the file counts as use of the sandbox. So it looks only after
// another use of the sandbox, or while a run is in progress there.
type fileWatch struct {
	server    *Server
	principal sandbox.Principal
	id, path  string

	used  time.Time // time of last use, after the last look
	again bool      // there may have been another use during the last look
	state string
}

func (f *fileWatch) look(ctx context.Context) (state string, over bool, err error) {
	e := f.server.engine
	sb, err := e.Get(ctx, f.principal, f.id)
	if err != nil || sb.State == sandbox.Stopped {
		return "", true, err
	}
	used := !sb.Used.Equal(f.used)
	if !used && !f.again {
		runs, err := e.Runs(ctx, f.principal, f.id, maxLogRuns)
		if err != nil {
			return "", false, err
		}
		running := func(r sandbox.Run) bool { return r.Status == sandbox.RunRunning }
		if !slices.ContainsFunc(runs, running) {
			return f.state, false, nil
		}
	}
	f.again = used
	file, err := e.StatFile(ctx, f.principal, f.id, f.path)
	switch {
	case errors.Is(err, sandbox.NotFound):
		f.state = "none"
	case err != nil:
		return "", false, err
	default:
		f.state = fmt.Sprint(file.Type, file.Size, file.Modified.UnixNano(), file.Target)
	}
	// The look itself was a use.
	if sb, err = e.Get(ctx, f.principal, f.id); err != nil {
		return "", false, err
	}
	f.used = sb.Used
	return f.state, false, nil
}
