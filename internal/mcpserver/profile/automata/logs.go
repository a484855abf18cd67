package automata

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// maxLogRuns and maxLog bound one read of the log. If the log is larger than
	// maxLog bytes, each run shows the head and tail of its output.
	maxLogRuns = 10000
	maxLog     = 8 << 20
	// minLog is the smallest budget of a run, in bytes.
	minLog = 256
)

// logs returns the output of all commands in order, and then each stream
// separately.
func (s *server) logs(ctx context.Context, p sandbox.Principal, u *url.URL) ([]profile.Content, error) {
	id := sandboxOf(u)
	if id == "" {
		return nil, sandbox.Errorf(sandbox.NotFound, "%s is no container's log", u)
	}
	runs, err := s.opts.Engine.Runs(ctx, p, id, maxLogRuns)
	if err != nil {
		return nil, err
	}
	var all, stdout, stderr strings.Builder
	for i, run := range runs {
		// The remaining runs share the remaining budget. Reserve a part of it for
		// at most 16 runs, because the last runs matter most.
		budget := max((maxLog-all.Len())/min(len(runs)-i, 16), minLog)
		out, err := profile.ReadOutput(ctx, s.opts.Engine, p, run.ID, min(budget, 1<<20))
		if errors.Is(err, sandbox.NotFound) {
			continue // the engine has dropped the run meanwhile
		}
		if err != nil {
			return nil, err
		}
		all.WriteString(profile.Lines(out.Merged))
		stdout.WriteString(profile.Lines(out.Stdout))
		stderr.WriteString(profile.Lines(out.Stderr))
	}
	return []profile.Content{
		{Text: all.String()},
		{URI: u.String() + "#stdout", Text: stdout.String()},
		{URI: u.String() + "#stderr", Text: stderr.String()},
	}, nil
}
