package engine

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// TestSandboxMoves tries every move of a sandbox from every state.
func TestSandboxMoves(t *testing.T) {
	may := map[[2]sandboxState]bool{
		{starting, cancelled}: true, {starting, failed}: true, {starting, running}: true, {starting, hibernated}: true,
		{cancelled, failed}: true, {cancelled, stopping}: true,
		{running, hibernated}: true, {running, stopping}: true, {running, released}: true,
		{hibernated, running}: true, {hibernated, stopping}: true, {hibernated, released}: true,
		{stopping, stuck}: true, {stopping, gone}: true, {stopping, released}: true,
		{stuck, stopping}: true,
	}
	for from := starting; from <= released; from++ {
		for to := starting; to <= released; to++ {
			e, said := quietEngine()
			b := e.newLive(store.Sandbox{})
			b.state = from
			moved := b.moveLocked(to)
			if want := may[[2]sandboxState{from, to}]; moved != want || (b.state == to) != (want || from == to) || (said.Len() > 0) == want {
				t.Errorf("from %s to %s: %t, and it is %s: %s", from, to, moved, b.state, said)
			}
			if state, ok := map[sandboxState]sandbox.State{running: sandbox.Running, hibernated: sandbox.Hibernated}[to]; ok && moved && b.rec.State != state {
				t.Errorf("the record of a sandbox that is %s says %s", to, b.rec.State)
			}
		}
	}
}

// quietEngine returns an engine that only logs, and its log.
func quietEngine() (*Engine, *bytes.Buffer) {
	said := new(bytes.Buffer)
	return &Engine{log: slog.New(slog.NewTextHandler(said, nil))}, said
}
