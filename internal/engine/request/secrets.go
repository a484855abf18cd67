package request

import (
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// CheckSecrets returns an error if the secrets of the operator are invalid, or if the
// driver or the most permissive network leaves no use for them.
func CheckSecrets(secrets []sandbox.Secret, most sandbox.Network, info driver.Info) error {
	if len(secrets) == 0 {
		return nil
	}
	if err := sandbox.CheckSecrets(secrets); err != nil {
		return err
	}
	if !info.Features.Network {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "driver %s has no network to put secrets into", info.Name),
			"use another driver: glovebox doctor lists them")
	}
	for _, s := range secrets {
		if err := s.Hosts.Within(most); err != nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "secret %s: %w", s.Name, err), "%s", sandbox.HintOf(err))
		}
	}
	return nil
}
