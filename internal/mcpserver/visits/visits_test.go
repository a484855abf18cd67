package visits

import (
	"fmt"
	"testing"
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
