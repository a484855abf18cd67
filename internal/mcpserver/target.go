package mcpserver

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A target is the sandbox that a call puts files into.
type target struct {
	id   string
	made bool // the call made it
}

// line returns the note as the last line of a text.
func (t target) line() string {
	if !t.made {
		return ""
	}
	return "\n" + t.note()
}

// note says that the call made its sandbox, or is "".
func (t target) note() string {
	if !t.made {
		return ""
	}
	return "The new sandbox is " + t.id + ": give this sandbox_id in the next calls."
}

// fill calls put with the id of a sandbox. Without an id it makes a sandbox, and
// stops it if put fails, because no caller knows it then.
func (s *Server) fill(ctx context.Context, c call, id string, put func(id string) error) (target, error) {
	if id != "" {
		return target{id: id}, put(id)
	}
	if !c.identity.Can(auth.ScopeRun) {
		return target{}, sandbox.WithHint(
			sandbox.Errorf(sandbox.Forbidden, "sandbox_id: without it the call makes a sandbox, and this token lacks the scope %q", auth.ScopeRun),
			"give the sandbox_id of a sandbox, or use a token that was created with that scope")
	}
	sb, err := s.engine.Create(ctx, c.principal, sandbox.CreateRequest{})
	if err != nil {
		return target{}, err
	}
	if err := put(sb.ID); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transport.StopTimeout)
		defer cancel()
		return target{}, errors.Join(err, s.engine.Stop(stopCtx, c.principal, sb.ID))
	}
	c.facts.in(sb.ID)
	return target{sb.ID, true}, nil
}
