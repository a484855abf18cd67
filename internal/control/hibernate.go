package control

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// hibernate makes a sandbox hibernate, and answers with the sandbox.
func (s *Server) hibernate(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	p, err := s.engine.Owner(r.Context(), id)
	if err == nil {
		err = s.engine.Hibernate(r.Context(), p, id)
	}
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.engine.Get(r.Context(), p, id)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, sb)
}

// hibernateTime bounds how long a save may take.
const hibernateTime = 2 * answerTime

// Hibernate makes a sandbox of the process hibernate, and returns it.
func (c Client) Hibernate(ctx context.Context, id string) (sandbox.Sandbox, error) {
	conn, resp, err := c.askWithin(ctx, hibernateTime, http.MethodPut, "/sandboxes/"+id+"/hibernation", nil)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer conn.Close()
	var sb sandbox.Sandbox
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&sb); err != nil {
		return sandbox.Sandbox{}, sandbox.Errorf(sandbox.Unavailable, "read answer: %w", err)
	}
	return sb, nil
}
