package transport

import (
	"context"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair/fairtest"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestFairness has one hostile principal among others that open sessions.
func TestFairness(t *testing.T) {
	start := func(*testing.T) *openSessions { return newOpenSessions(ledger.NewShares(40).Sessions) }
	fairtest.Run(t, start, func(ctx context.Context, sessions *openSessions, who sandbox.Principal) error {
		ses, err := sessions.begin(ctx, auth.Identity{Principal: who})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ses.bind("", cancel)
		defer ses.gone()
		defer ses.use()() // it is never idle
		select {
		case <-time.After(fairtest.Service):
		case <-ctx.Done():
		}
		return nil
	})
}
