package automata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// host returns the Host, or the error for a server without one.
func (s *server) host() (Host, error) {
	if s.opts.Host != nil {
		return s.opts.Host, nil
	}
	return nil, sandbox.WithHint(
		sandbox.Errorf(sandbox.Unsupported, "files of this machine are out of reach over HTTP"),
		"use write_file, or start the server over stdio with --allow-dir and the directory to copy from and to")
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

// copyIn copies a file, or a directory with everything below it.
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
	dir, err := s.workDir(ctx, c.Principal, id)
	if err != nil {
		return profile.Result{}, err
	}
	to = resolve(dir, to)
	// Until Walk reports a file, assume a directory, which may be empty.
	dirs, executables := []string{to}, []string(nil)
	skipped, err := host.Walk(ctx, from, func(name string, executable bool, content io.Reader) error {
		full := path.Join(to, name)
		if content == nil {
			dirs = append(dirs, full)
			return nil
		}
		if name == "" {
			dirs = nil
		}
		if executable {
			executables = append(executables, full)
		}
		return s.opts.Engine.WriteFileAsRoot(ctx, c.Principal, id, full, content)
	})
	if err != nil {
		return profile.Result{}, err
	}
	for _, change := range []struct {
		argv  []string
		paths []string
	}{{[]string{"mkdir", "-p", "--"}, dirs}, {[]string{"chmod", "a+x", "--"}, executables}} {
		if err := s.each(ctx, c, id, change.argv, change.paths); err != nil {
			return profile.Result{}, err
		}
	}
	res := profile.Text("Successfully copied " + from + " to " + to + " in container " + id)
	if skipped > 0 {
		res.Texts = append(res.Texts, fmt.Sprintf("note: %d links and special files were left out", skipped))
	}
	return res, nil
}

// maxPaths bounds the paths in the arguments of one program.
const maxPaths = 500

// each runs a program on all paths, in chunks of maxPaths.
func (s *server) each(ctx context.Context, c profile.Call, id string, argv, paths []string) error {
	for some := range slices.Chunk(paths, maxPaths) {
		run, err := c.Run(ctx, sandbox.RunRequest{SandboxID: id, Argv: slices.Concat(argv, some), Dir: "/", Root: true})
		if err == nil && run.Verdict.Code != sandbox.OK {
			err = sandbox.Errorf(sandbox.Invalid, "%s in the sandbox: %s", argv[0], run.Verdict.Cause)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *server) copyOut(ctx context.Context, c profile.Call, in struct {
	ID   string `json:"container_id"`
	From string `json:"container_src_path"`
	To   string `json:"local_dest_path"`
}) (_ profile.Result, err error) {
	if err := given("container_id", in.ID, "container_src_path", in.From); err != nil {
		return profile.Result{}, err
	}
	host, err := s.host()
	if err != nil {
		return profile.Result{}, err
	}
	dir, err := s.workDir(ctx, c.Principal, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	from, to := resolve(dir, in.From), in.To
	if to == "" {
		to = path.Base(from)
	}
	if to, err = filepath.Abs(to); err != nil {
		return profile.Result{}, sandbox.Errorf(sandbox.Invalid, "local_dest_path: not a path: %w", err)
	}
	r, _, err := s.opts.Engine.ReadFileAsRoot(ctx, c.Principal, in.ID, from)
	if err != nil {
		return profile.Result{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := host.Write(to, r); err != nil {
		return profile.Result{}, err
	}
	return profile.Text("Successfully copied " + in.From + " from container " + in.ID + " to " + to), nil
}
