package auth

import (
	"context"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Revoked returns what reports whether an identity was proved by a token that
// has been revoked since, by this process or another. An identity that names no
// token is revoked with the last token of its principal. Identities that no
// token of the store proves are never revoked.
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

// goneEvery is how old the answer of Gone may be.
const goneEvery = time.Second

// Gone reports whether an identity was revoked, as [Auth.Revoked] does, up to a
// second ago.
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
