package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestStartTimeout has a guest that never answers not hold up a start, and
// the bound on starts not end what has started.
func TestStartTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		begun := time.Now()
		_, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"mute"}})
		if sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "did not start the program within 30s") {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(begun); took < run.StartTimeout || took > run.StartTimeout+time.Second {
			t.Errorf("it took %v", took)
		}
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "45s"}, Timeout: time.Minute})
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
	})
}

// TestStopDuringStart stops a sandbox while its driver makes it. The caller gets
// the reason, whose kind says whether to try again.
func TestStopDuringStart(t *testing.T) {
	for _, tt := range []struct {
		why  verdict.Reason
		kind sandbox.Kind
	}{
		{verdict.Reason{Cause: "the sandbox was stopped on request", Code: sandbox.Cancelled}, sandbox.Unavailable},
		{verdict.Reason{Cause: "its workspace is full", Code: sandbox.DiskFull, Next: verdict.NextWorkspace}, sandbox.Exhausted},
		{verdict.Reason{Cause: "the server was full", Code: sandbox.SandboxLost, Retry: time.Minute}, sandbox.Exhausted},
	} {
		t.Run(tt.why.Cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				e := openWorld(t, w, t.TempDir(), nil)
				w.creating = func(ctx context.Context, spec *driver.Spec) error {
					go e.live(spec.ID).Stop(context.Background(), tt.why)
					<-ctx.Done()
					return fmt.Errorf("create box: %w", ctx.Err())
				}
				_, err := e.Start(t.Context(), alice, sandbox.RunRequest{Commands: []string{"true"}})
				if sandbox.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.why.Cause) {
					t.Errorf("error is %v, kind %v; want %v", err, sandbox.KindOf(err), tt.kind)
				}
				if hint, retry := sandbox.HintOf(err), sandbox.RetryAfterOf(err); hint != tt.why.Next || retry != tt.why.Retry {
					t.Errorf("hint %q, retry after %v", hint, retry)
				}
				synctest.Wait()
				if list, err := e.List(t.Context(), alice); err != nil || len(list) != 0 {
					t.Errorf("left: %v, %v", list, err)
				}
			})
		})
	}
}
