package engine

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// secretsOf returns the secrets that p's sandboxes with that network use.
func (e *Engine) secretsOf(p sandbox.Principal, n sandbox.Network) []sandbox.Secret {
	if n == sandbox.NetworkNone || n == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(e.opts.Secrets), func(s sandbox.Secret) bool { return !s.UsedBy(p) })
}

// installAuthority makes the sandbox trust the authority that signs for the
// hosts of its secrets, if it has secrets.
func (b *liveSandbox) installAuthority(ctx context.Context, secrets []sandbox.Secret) error {
	if len(secrets) == 0 {
		return nil
	}
	authority, err := driver.ReadAuthority(ctx, b.drv)
	if err != nil {
		return err
	}
	if len(authority) == 0 {
		return sandbox.Errorf(sandbox.Internal, "the sandbox's network does not say who signs for its secrets")
	}
	return guestlink.Trust(ctx, b.guest, authority, b.e.log.With("sandbox", b.id))
}
