package run

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestMoves tries every move of a run from every state.
func TestMoves(t *testing.T) {
	may := map[[2]state]bool{
		{beginning, going}: true, {beginning, leaving}: true, {beginning, dropped}: true,
		{going, leaving}: true, {going, finished}: true,
		{leaving, finished}: true, {leaving, left}: true, {leaving, dropped}: true,
	}
	for from := beginning; from <= dropped; from++ {
		for to := beginning; to <= dropped; to++ {
			said := new(bytes.Buffer)
			r := &Run{set: &Set{opts: Options{Log: slog.New(slog.NewTextHandler(said, nil))}}, state: from}
			moved := r.moveLocked(to)
			if want := may[[2]state{from, to}]; moved != want || (r.state == to) != (want || from == to) || (said.Len() > 0) == want {
				t.Errorf("from %s to %s: %t, and it is %s: %s", from, to, moved, r.state, said)
			}
			if moved && (to == finished) != (r.rec.Status == sandbox.RunFinished) {
				t.Errorf("the record of a run that is %s says %s", to, r.rec.Status)
			}
		}
	}
}
