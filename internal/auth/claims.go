package auth

import (
	"context"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// claimEvery is how long recorded groups of a principal are taken to be those of the
// store. An administrator may have removed one meanwhile.
const claimEvery = time.Minute

// maxClaims bounds the memory of claims. Beyond it, claims are recorded again.
const maxClaims = 10_000

// A claim is what was recorded for a principal.
type claim struct {
	groups []string
	at     time.Time
}

// claim records the groups that the issuer claims for an identity, if they are not
// known to be recorded.
func (a *Auth) claim(ctx context.Context, id Identity) error {
	if a.recordClaim == nil || id.Groups == nil {
		return nil
	}
	now := a.now()
	a.mu.Lock()
	last, known := a.claims[id.Principal]
	a.mu.Unlock()
	if known && slices.Equal(last.groups, id.Groups) && now.Sub(last.at) < claimEvery {
		return nil
	}
	if err := a.recordClaim(ctx, id.Principal, id.Groups); err != nil {
		return sandbox.Wrap(err, "verify token", "")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.claims) >= maxClaims {
		clear(a.claims)
	}
	a.claims[id.Principal] = claim{id.Groups, now}
	return nil
}
