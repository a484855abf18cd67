package request

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestStartError ends the context of a start. Drivers wrap that end in errors of their
// own, which must not make it a fault of the server.
func TestStartError(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for name, ctx := range map[string]context.Context{"cancelled": cancelled, "late": late} {
		for of, err := range map[string]error{
			"the context":    ctx.Err(),
			"a driver":       sandbox.Wrap(ctx.Err(), "create box", "sbx_1"),
			"a driver's own": sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "no room"), "make room"),
		} {
			got := StartError(ctx, err)
			if sandbox.KindOf(got) != sandbox.Unavailable || !errors.Is(got, ctx.Err()) || sandbox.HintOf(got) != sandbox.HintOf(err) {
				t.Errorf("%s, error of %s: %v (kind %s, hint %q)", name, of, got, sandbox.KindOf(got), sandbox.HintOf(got))
			}
		}
	}
	if err := sandbox.Errorf(sandbox.Internal, "a fault"); StartError(t.Context(), err) != err {
		t.Error("another error is not left as it is")
	}
}
