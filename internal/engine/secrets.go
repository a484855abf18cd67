package engine

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// checkSecrets returns an error if the secrets are invalid, or if the driver or
// MaxNetwork leaves no use for them.
func (o *Options) checkSecrets(info driver.Info) error {
	if len(o.Secrets) == 0 {
		return nil
	}
	if err := sandbox.CheckSecrets(o.Secrets); err != nil {
		return err
	}
	if !info.Features.Network {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "driver %s has no network to put secrets into", info.Name),
			"use another driver: glovebox doctor lists them")
	}
	for _, s := range o.Secrets {
		if err := s.Hosts.Within(o.MaxNetwork); err != nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "secret %s: %w", s.Name, err), "%s", sandbox.HintOf(err))
		}
	}
	return nil
}

// secretsOf returns the secrets that p's sandboxes with that network use.
func (e *Engine) secretsOf(p sandbox.Principal, n sandbox.Network) []sandbox.Secret {
	if n == sandbox.NetworkNone || n == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(e.opts.Secrets), func(s sandbox.Secret) bool { return !s.UsedBy(p) })
}

// secretEnv returns additional variables for a sandbox with these secrets: their
// placeholders, and the variables that make programs trust the network's
// authority.
func secretEnv(secrets []sandbox.Secret) map[string]string {
	env := map[string]string{}
	for _, s := range secrets {
		if !s.Always {
			env[s.Name] = s.Placeholder()
		}
	}
	if len(secrets) > 0 {
		for name, value := range guestlink.TrustEnv() {
			env[name] = value
		}
	}
	return env
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
