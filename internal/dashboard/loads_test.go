package dashboard

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestLoads measures sandboxes while a page shows them, and draws what they use.
func TestLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Now = time.Now })
		w.engine.box.Limits.CPUs, w.engine.box.Limits.MemoryBytes = 1, 128<<20
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { w.server.Run(ctx); close(done) }()
		time.Sleep(time.Minute)
		if w.engine.measured.Load() > 0 {
			t.Errorf("%d measurements, though nobody looks", w.engine.measured.Load())
		}
		w.signIn("alice")
		w.get(Path)
		time.Sleep(time.Minute)
		_, body := w.get(Path)
		for _, want := range []string{`aria-label="0.50 of 1 CPU"`, `aria-label="64 MiB of 128 MiB memory"`, `<polyline points="`, " 78,11"} {
			if !strings.Contains(body, want) {
				t.Errorf("the page lacks %q:\n%s", want, body)
			}
		}
		time.Sleep(loadWanted + time.Minute)
		before := w.engine.measured.Load()
		time.Sleep(time.Hour)
		if w.engine.measured.Load() != before {
			t.Error("measurements go on, though nobody looks")
		}
		if v := w.server.loads.load(w.engine.box); v != (loadView{}) {
			t.Errorf("an old measurement is shown: %+v", v)
		}
		w.get(Path)
		time.Sleep(time.Minute)
		w.engine.box.State = sandbox.Hibernated
		if v := w.server.loads.load(w.engine.box); v != (loadView{}) {
			t.Errorf("a hibernated sandbox: %+v", v)
		}
		cancel()
		<-done
	})
}
