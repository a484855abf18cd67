package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of the memory of visits, and of the sandboxes that a hint names.
const (
	maxVisits = 4096
	maxNamed  = 3
)

// A visitor is a session of a principal. On stdio, and for requests without a
// session, the session is "".
type visitor struct {
	principal sandbox.Principal
	session   string
}

// visitor returns the visitor of a call.
func (c call) visitor() visitor {
	v := visitor{principal: c.principal}
	if c.req != nil && c.req.Session != nil {
		v.session = c.req.Session.ID()
	}
	return v
}

// A visit is a visitor's last use of a sandbox.
type visit struct {
	visitor   visitor
	sandboxID string
	maker     string // id of the visitor's run that made the sandbox, or ""
}

// visits remember which sandboxes each session used, for hints and for the order
// of lists. A lost visit only makes a hint shorter.
type visits struct {
	mu   sync.Mutex
	last []visit // most recent last
}

// note records a visit. maker is the run that made the sandbox in this call, or "".
func (v *visits) note(by visitor, sandboxID, maker string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, old := range v.last {
		if old.visitor == by && old.sandboxID == sandboxID {
			maker = old.maker
			v.last = slices.Delete(v.last, i, i+1)
			break
		}
	}
	v.last = append(v.last, visit{by, sandboxID, maker})
	if n := len(v.last) - maxVisits; n > 0 {
		v.last = slices.Delete(v.last, 0, n)
	}
}

// of returns the visits of a session, the most recent first.
func (v *visits) of(by visitor) []visit {
	v.mu.Lock()
	defer v.mu.Unlock()
	var found []visit
	for _, one := range slices.Backward(v.last) {
		if one.visitor == by {
			found = append(found, one)
		}
	}
	return found
}

// missesState reports whether a run failed for a variable or a file that does not
// exist. failure is the exception that ended it, or nil.
func missesState(run sandbox.Run, failure *sandbox.RunError, stderr string) bool {
	if run.Status != sandbox.RunFinished || run.Verdict.Code != sandbox.Failed {
		return false
	}
	if failure != nil {
		return failure.MissesState()
	}
	return sandbox.MissesFile(stderr)
}

// newSandboxHint returns the next step for a run that missed a variable or a file,
// if a call of this session made the run's sandbox for it. It returns "" otherwise.
func (s *Server) newSandboxHint(ctx context.Context, c call, run sandbox.Run) string {
	seen := s.visits.of(c.visitor())
	if !slices.ContainsFunc(seen, func(v visit) bool { return v.maker == run.ID }) {
		return ""
	}
	var earlier []string
	for _, v := range seen {
		if v.sandboxID == run.SandboxID {
			continue
		}
		sb, err := s.engine.Get(ctx, c.principal, v.sandboxID)
		if err != nil || sb.State == sandbox.Stopped {
			continue // it is no place to go on
		}
		if earlier = append(earlier, v.sandboxID); len(earlier) == maxNamed {
			break
		}
	}
	switch len(earlier) {
	case 0:
		return fmt.Sprintf("this is a new sandbox, as for each call without sandbox_id; give sandbox_id %s to go on in it", run.SandboxID)
	case 1:
		return fmt.Sprintf("this is a new sandbox; give sandbox_id %s to go on in the earlier one", earlier[0])
	}
	return fmt.Sprintf("this is a new sandbox; give the sandbox_id of an earlier one to go on there: %s", strings.Join(earlier, ", "))
}
