package app

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// offerRuns lets commands of this machine start runs that this server holds, as the
// local user.
func (s *System) offerRuns() {
	if s.control != nil {
		s.control.OfferRuns(func(ctx context.Context, req sandbox.RunRequest) (sandbox.Run, error) {
			return s.Engine.Start(ctx, sandbox.Local, req)
		})
	}
}

// StartDetached starts a run in a new sandbox of the server on the state directory.
// Both outlive this process. The error wraps [sandbox.Unavailable] if no server runs.
func (s *System) StartDetached(ctx context.Context, req sandbox.RunRequest) (sandbox.Run, error) {
	servers, err := s.store.Servers(ctx)
	if err != nil {
		return sandbox.Run{}, err
	}
	for _, id := range servers {
		run, err := control.Client{Path: s.store.OwnerSocket(id)}.Start(ctx, req)
		if !errors.Is(err, control.ErrElsewhere) {
			return run, err
		}
	}
	return sandbox.Run{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "no server runs on this state directory, and a sandbox of this command would end with it"),
		"start a server in another terminal, or as a service of the machine: glovebox serve")
}
