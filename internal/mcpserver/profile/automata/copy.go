package automata

import (
	"context"
	"path"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// host returns what copies, or the error that says why nothing does.
func (s *server) host() (Host, error) {
	if s.opts.Host != nil {
		return s.opts.Host, nil
	}
	return nil, sandbox.WithHint(
		sandbox.Errorf(sandbox.Unsupported, "files of this machine are not within reach: no directory was allowed"),
		"over stdio, start the server with --allow-dir and the directory to copy from and to; write_file and sandbox_exec need none")
}

func (s *server) copyProject(ctx context.Context, c profile.Call, in struct {
	ID   string `json:"container_id"`
	From string `json:"local_src_dir"`
	To   string `json:"dest_dir"`
}) (profile.Result, error) {
	if err := given("container_id", in.ID, "local_src_dir", in.From); err != nil {
		return profile.Result{}, err
	}
	return s.copyIn(ctx, c, in.ID, in.From, in.To)
}

func (s *server) copyFile(ctx context.Context, c profile.Call, in struct {
	ID   string `json:"container_id"`
	From string `json:"local_src_file"`
	To   string `json:"dest_path"`
}) (profile.Result, error) {
	if err := given("container_id", in.ID, "local_src_file", in.From); err != nil {
		return profile.Result{}, err
	}
	return s.copyIn(ctx, c, in.ID, in.From, in.To)
}

func (s *server) copyIn(ctx context.Context, c profile.Call, id, from, to string) (profile.Result, error) {
	host, err := s.host()
	if err != nil {
		return profile.Result{}, err
	}
	if from, err = filepath.Abs(from); err != nil {
		return profile.Result{}, sandbox.Errorf(sandbox.Invalid, "%s: not a path: %w", from, err)
	}
	if to == "" {
		to = filepath.Base(from)
	}
	to = resolve(to)
	if err := host.CopyIn(ctx, c.Principal, id, from, to); err != nil {
		return profile.Result{}, err
	}
	return profile.Text("Successfully copied " + from + " to " + to + " in container " + id), nil
}

func (s *server) copyOut(ctx context.Context, c profile.Call, in struct {
	ID   string `json:"container_id"`
	From string `json:"container_src_path"`
	To   string `json:"local_dest_path"`
}) (profile.Result, error) {
	if err := given("container_id", in.ID, "container_src_path", in.From); err != nil {
		return profile.Result{}, err
	}
	host, err := s.host()
	if err != nil {
		return profile.Result{}, err
	}
	from, to := resolve(in.From), in.To
	if to == "" {
		to = path.Base(from)
	}
	if to, err = filepath.Abs(to); err != nil {
		return profile.Result{}, sandbox.Errorf(sandbox.Invalid, "local_dest_path: not a path: %w", err)
	}
	if err := host.CopyOut(ctx, c.Principal, in.ID, from, to); err != nil {
		return profile.Result{}, err
	}
	return profile.Text("Successfully copied " + in.From + " from container " + in.ID + " to " + to), nil
}
