// Package visits remembers which sandboxes each session of a client used. It orders
// lists by that, and names earlier sandboxes to a model that forgot them.
//
// Only package mcpserver imports it. The memory is bounded, and ends with the
// process. A forgotten visit only makes a hint shorter.
package visits

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of the memory, and of the sandboxes that a hint looks at and names.
const (
	maxVisits = 4096
	maxLooked = 16
	maxNamed  = 3
)

// A Visitor is a session of a principal. On stdio, and for requests without a
// session, Session is "".
type Visitor struct {
	Principal sandbox.Principal
	Session   string
}

// A visit is a visitor's last use of a sandbox.
type visit struct {
	visitor   Visitor
	sandboxID string
	maker     string // id of the visitor's run that made the sandbox, or ""
}

// Visits is the memory of a server. The zero value is empty. It is safe for
// concurrent use.
type Visits struct {
	mu   sync.Mutex
	last []visit // most recent last
}

// Note records a visit. maker is the run for which the call made the sandbox, or "".
func (v *Visits) Note(by Visitor, sandboxID, maker string) {
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

// of returns the visits of a visitor, the most recent first.
func (v *Visits) of(by Visitor) []visit {
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

// forget removes a visit.
func (v *Visits) forget(by Visitor, sandboxID string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = slices.DeleteFunc(v.last, func(one visit) bool { return one.visitor == by && one.sandboxID == sandboxID })
}

// Hint returns the next step for a run that missed a variable or a file, if a call
// of the visitor made the run's sandbox for it. It returns "" otherwise. live reports
// whether a sandbox can be used. Hint asks it for the last visits only, and forgets
// those whose sandbox cannot be used.
func (v *Visits) Hint(by Visitor, run sandbox.Run, live func(sandboxID string) bool) string {
	seen := v.of(by)
	if !slices.ContainsFunc(seen, func(v visit) bool { return v.maker == run.ID }) {
		return ""
	}
	var earlier []string
	for _, one := range seen[:min(len(seen), maxLooked)] {
		if one.sandboxID == run.SandboxID {
			continue
		}
		if !live(one.sandboxID) {
			v.forget(by, one.sandboxID)
			continue
		}
		if earlier = append(earlier, one.sandboxID); len(earlier) == maxNamed {
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

// Sort puts the live sandboxes before the stopped ones, those of a visitor before
// all others, and then the most recently used first.
func (v *Visits) Sort(sbs []sandbox.Sandbox, by Visitor) {
	own := map[string]bool{}
	for _, seen := range v.of(by) {
		own[seen.sandboxID] = true
	}
	rank := func(sb sandbox.Sandbox) int {
		switch {
		case sb.State == sandbox.Stopped:
			return 2
		case own[sb.ID]:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(sbs, func(a, b sandbox.Sandbox) int {
		return cmp.Or(rank(a)-rank(b), b.Ended.Compare(a.Ended), b.Used.Compare(a.Used))
	})
}
