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
	// maxLogRuns and maxLog bound what one read of the log shows. Above
	// maxLog bytes each run shows the head and tail of what it wrote.
	maxLogRuns = 10000
	maxLog     = 8 << 20
	// minLog is what a run shows at least.
	minLog = 256
)

// logs is everything that commands wrote, in order, then each stream by itself.
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
		// What is left is shared by the runs that are left, the last of which
		// matter most.
		budget := max((maxLog-all.Len())/min(len(runs)-i, 16), minLog)
		out, err := profile.ReadOutput(ctx, s.opts.Engine, p, run.ID, min(budget, 1<<20))
		if errors.Is(err, sandbox.NotFound) {
			continue // it was forgotten meanwhile
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
