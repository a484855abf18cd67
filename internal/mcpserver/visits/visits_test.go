package visits

import (
	"fmt"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestVisitsAreBounded uses more sandboxes than are remembered.
func TestVisitsAreBounded(t *testing.T) {
	var v Visits
	by := Visitor{Principal: "alice"}
	v.Note(by, "sbx_first", "run_first")
	for i := range maxVisits {
		v.Note(by, fmt.Sprint("sbx_", i), "")
	}
	v.Note(by, "sbx_0", "")
	seen := v.of(by)
	if len(seen) != maxVisits || seen[0].sandboxID != "sbx_0" || seen[len(seen)-1].sandboxID != "sbx_1" {
		t.Errorf("%d visits, from %+v to %+v", len(seen), seen[0], seen[len(seen)-1])
	}
	if other := v.of(Visitor{Principal: "alice", Session: "s"}); other != nil {
		t.Errorf("another session has %+v", other)
	}
}

// TestHintLooksAtFewSandboxes has many stopped sandboxes, and one that is live.
func TestHintLooksAtFewSandboxes(t *testing.T) {
	var v Visits
	by, other := Visitor{Principal: "alice"}, Visitor{Principal: "bob"}
	v.Note(other, "sbx_0", "run_other")
	v.Note(by, "sbx_live", "")
	const stopped = 100
	for i := range stopped {
		v.Note(by, fmt.Sprint("sbx_", i), "")
	}
	asked := map[string]int{}
	for i := range stopped/(maxLooked-1) + 1 {
		run := sandbox.Run{ID: fmt.Sprint("run_", i), SandboxID: "sbx_own"}
		v.forget(by, run.SandboxID)
		v.Note(by, run.SandboxID, run.ID)
		before, calls := len(asked), 0
		hint := v.Hint(by, run, func(id string) bool {
			calls++
			asked[id]++
			return id == "sbx_live"
		})
		if calls > maxLooked || len(asked)-before != calls {
			t.Fatalf("hint %d asked for %d sandboxes, %d of them new", i, calls, len(asked)-before)
		}
		if last := len(asked) == stopped+1; strings.Contains(hint, "sbx_live") != last {
			t.Errorf("hint %d, after %d sandboxes: %s", i, len(asked), hint)
		}
	}
	if len(asked) != stopped+1 {
		t.Errorf("%d sandboxes were looked at, want %d", len(asked), stopped+1)
	}
	if seen := v.of(other); len(seen) != 1 {
		t.Errorf("another visitor has %+v", seen)
	}
}
