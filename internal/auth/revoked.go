package auth

import (
	"context"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Revoked returns a function that reports whether an identity's token has been
// revoked, by any process. An identity without a token counts as revoked when the
// last token of its principal is revoked. Identities that no token of the store
// proved are never revoked.
func (a *Auth) Revoked(ctx context.Context) (func(Identity) bool, error) {
	list, err := a.List(ctx)
	if err != nil {
		return nil, err
	}
	tokens, principals := map[string]bool{}, map[sandbox.Principal]bool{} // true is in force
	for _, t := range list {
		inForce := t.Revoked.IsZero()
		tokens[t.ID] = inForce
		principals[t.Principal] = principals[t.Principal] || inForce
	}
	return func(id Identity) bool {
		if id.Token != "" {
			return !tokens[id.Token]
		}
		return strings.HasPrefix(string(id.Principal), tokenPrincipal) && !principals[id.Principal]
	}, nil
}

// goneEvery is the maximum age of the data that Gone uses.
const goneEvery = time.Second

// Gone reports whether an identity was revoked, as [Auth.Revoked] does. The
// answer may be up to a second old.
func (a *Auth) Gone(ctx context.Context, id Identity) (bool, error) {
	a.goneMu.Lock()
	defer a.goneMu.Unlock()
	if now := a.now(); a.gone == nil || now.Sub(a.goneAt) >= goneEvery {
		gone, err := a.Revoked(ctx)
		if err != nil {
			return false, err
		}
		a.gone, a.goneAt = gone, now
	}
	return a.gone(id), nil
}
