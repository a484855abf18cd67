package runlog

import (
	"encoding/json"
	"runtime"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCleanDataOfManyTypes takes no memory for the invalid types of a result.
func TestCleanDataOfManyTypes(t *testing.T) {
	data := map[string]json.RawMessage{"text/plain": json.RawMessage(`"x"`)}
	for i := range 100_000 {
		data[strconv.Itoa(i)] = json.RawMessage("1")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := cleanData(data)
	runtime.ReadMemStats(&after)
	if diff := cmp.Diff(map[string]json.RawMessage{"text/plain": json.RawMessage(`"x"`)}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
		t.Errorf("%d bytes allocated for %d types", n, len(data))
	}
}
