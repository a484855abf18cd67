package notices

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A state is what a look saw. The zero state is unknown.
type state struct {
	began     time.Time // no notice about anything that began earlier, unless it was seen to live
	sandboxes map[string]sandbox.Sandbox
	runs      map[string]sandbox.Run
	order     []sandbox.Run // newest first
	boxes     []sandbox.Sandbox
	live      int // sandboxes that have not stopped
}

func (s state) unknown() bool { return s.sandboxes == nil }

// look returns the present state of a principal.
func (n *Notices) look(ctx context.Context, p sandbox.Principal) (state, error) {
	boxes, err := n.engine.List(ctx, p)
	if err != nil {
		return state{}, err
	}
	runs, err := n.engine.LastRuns(ctx, p, maxRuns)
	if err != nil {
		return state{}, err
	}
	s := state{sandboxes: map[string]sandbox.Sandbox{}, runs: map[string]sandbox.Run{}, boxes: boxes}
	for _, sb := range boxes {
		s.sandboxes[sb.ID] = sb
		if sb.State != sandbox.Stopped {
			s.live++
		}
	}
	for _, r := range runs {
		s.runs[r.ID] = r.Run
		s.order = append(s.order, r.Run)
	}
	return s, nil
}

// A notice is one log notification.
type notice struct {
	level mcp.LoggingLevel
	data  data
}

// data is the structured content of a notice.
type data struct {
	Event     string              `json:"event"`
	SandboxID string              `json:"sandbox_id,omitempty"`
	RunID     string              `json:"run_id,omitempty"`
	Verdict   sandbox.VerdictCode `json:"verdict,omitempty"`
	Cause     string              `json:"cause,omitempty"`
	Count     int                 `json:"count,omitempty"`
}

// news returns the notices about the changes between the last look and next, which
// becomes the last look.
func (n *Notices) news(f *follower, next state) (notices []notice) {
	last := f.seen
	next.began = last.began
	f.seen = next
	if last.unknown() {
		return nil
	}
	for _, sb := range next.boxes {
		was, known := last.sandboxes[sb.ID]
		if !known && sb.Created.Before(next.began) {
			continue
		}
		if !known {
			notices = append(notices, notice{"info", data{Event: "sandbox_started", SandboxID: sb.ID}})
		}
		if sb.State == sandbox.Stopped && (!known || was.State != sandbox.Stopped) {
			notices = append(notices, notice{"notice", data{Event: "sandbox_stopped", SandboxID: sb.ID, Cause: sb.Cause}})
		}
	}
	for i := len(next.order) - 1; i >= 0; i-- {
		r := next.order[i]
		was, known := last.runs[r.ID]
		if r.Status != sandbox.RunFinished || known && was.Status == sandbox.RunFinished || !known && r.Started.Before(next.began) {
			continue
		}
		if r.Network != nil && len(r.Network.Blocked) > 0 {
			notices = append(notices, notice{"warning", data{Event: "network_refused", SandboxID: r.SandboxID, RunID: r.ID, Count: len(r.Network.Blocked)}})
		}
		if n.answered(f, r.ID) {
			continue
		}
		level := mcp.LoggingLevel("info")
		if r.Verdict.Code != sandbox.OK {
			level = "warning"
		}
		notices = append(notices, notice{level, data{Event: "run_ended", SandboxID: r.SandboxID, RunID: r.ID, Verdict: r.Verdict.Code}})
	}
	n.next(f)
	return notices
}

// answered reports whether a call returns the end of a run.
func (n *Notices) answered(f *follower, runID string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, told := f.told[runID]
	return told || f.waiting[runID] > 0
}

// next counts a look, and forgets the runs whose end a call returned before the look
// that preceded it.
func (n *Notices) next(f *follower) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f.looks++
	for id, at := range f.told {
		if f.looks-at > 1 {
			delete(f.told, id)
		}
	}
}
