package app

import (
	"github.com/glovebox-dev/glovebox/internal/control"
)

// listen lets commands in other processes use the sandboxes of this process. A
// failure is only logged: it affects only those commands.
func (s *System) listen() {
	c, err := control.Serve(s.store.OwnerSocket(s.Engine.OwnerID()), s.Engine)
	if err != nil {
		s.log.Warn("commands cannot reach the sandboxes of this process", "error", err)
		return
	}
	s.control = c
}
