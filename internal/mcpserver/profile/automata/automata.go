// Package automata is the profile of Automata Labs' code-sandbox-mcp. Its
// sandboxes are made, filled, used and stopped by id. Commands are shell commands
// that run as root in /app.
//
// Only package app imports it. [New] makes a profile that lives as long as its
// server and has no state. The id of a container is the id of a sandbox.
package automata

import (
	"context"
	"errors"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Name is the profile's name.
const Name = "automata"

const (
	defaultImage = "python:3.12-slim-bookworm"
	// appDir is the working directory of commands. If the driver does not let an
	// image's root be changed, it is sandbox.WorkDir instead.
	appDir = "/app"
)

// Engine is the part of package engine that this profile uses.
type Engine interface {
	profile.Engine
	// WriteFileAsRoot writes a file as root of the sandbox and creates its parent
	// directories. ReadFileAsRoot opens a file as root; the caller closes it.
	WriteFileAsRoot(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader) error
	ReadFileAsRoot(ctx context.Context, p sandbox.Principal, id, path string) (io.ReadCloser, int64, error)
}

// Options are the arguments of [New]. Engine must be set.
type Options struct {
	profile.Options
	Engine Engine
	// Host gives access to files of this machine. Nil if the client is not on
	// this machine.
	Host Host
}

// A Host reads and writes files below the directories of this machine that the
// operator allowed. For any other path it returns an error that lists the allowed
// directories.
type Host interface {
	// Walk calls visit for the file at a path. For a directory, it calls visit for
	// everything below it, and for each directory before its entries. A directory
	// has a nil content. The name is "" if the path is a file.
	Walk(ctx context.Context, path string, visit func(name string, executable bool, content io.Reader) error) (skipped int, err error)
	// Write writes all of r to a path, with an atomic rename at the end.
	Write(path string, r io.Reader) error
}

type server struct{ opts Options }

const (
	idProperty = `"container_id":{"type":"string","description":"ID of the container returned from the initialize call"}`

	initializeInput = `{"type":"object","properties":{` +
		`"image":{"type":"string","description":"Image of the new environment, such as python:3.12-slim-bookworm","default":"` + defaultImage + `"}}}`

	writeInput = `{"type":"object","properties":{` + idProperty + `,` +
		`"file_name":{"type":"string","description":"Name of the file to create"},` +
		`"file_contents":{"type":"string","description":"What the file is to hold"},` +
		`"dest_dir":{"type":"string","description":"Directory to create it in; default ${WORKDIR}"}},` +
		`"required":["container_id","file_name","file_contents"]}`

	execInput = `{"type":"object","properties":{` + idProperty + `,` +
		`"commands":{"type":"array","items":{"type":"string"},"description":"Commands to run in order until one fails, such as [\"pip install numpy\", \"python script.py\"]"}},` +
		`"required":["container_id","commands"]}`

	copyProjectInput = `{"type":"object","properties":{` + idProperty + `,` +
		`"local_src_dir":{"type":"string","description":"Path of a directory on this machine"},` +
		`"dest_dir":{"type":"string","description":"Where to put it in the sandbox, relative to the working directory"}},` +
		`"required":["container_id","local_src_dir"]}`

	copyFileInput = `{"type":"object","properties":{` + idProperty + `,` +
		`"local_src_file":{"type":"string","description":"Path of a file on this machine"},` +
		`"dest_path":{"type":"string","description":"Where to put it in the sandbox, relative to the working directory"}},` +
		`"required":["container_id","local_src_file"]}`

	copyOutInput = `{"type":"object","properties":{` + idProperty + `,` +
		`"container_src_path":{"type":"string","description":"Path of a file in the sandbox"},` +
		`"local_dest_path":{"type":"string","description":"Where to put it on this machine; default: its name, in the current directory"}},` +
		`"required":["container_id","container_src_path"]}`

	stopInput = `{"type":"object","properties":{` + idProperty + `},"required":["container_id"]}`
)

// New returns the profile.
func New(o Options) profile.Profile {
	s := &server{opts: o}
	write := profile.Tool{
		Name:        "write_file_sandbox",
		Description: "Write a text file in the sandbox. It replaces one that is there.",
		Input:       writeInput, Scope: auth.ScopeFiles,
		Run: profile.Typed(writeInput, s.write),
	}
	// The documentation of the original uses this name.
	documented := write
	documented.Name = "write_file"
	return profile.Profile{
		Name:          Name,
		ServerName:    "code-sandbox-mcp",
		ServerVersion: "v1.0.0",
		Tools: []profile.Tool{
			{
				Name: "sandbox_initialize",
				Description: "Start a new, sealed environment to run code in. Returns a container_id, by which the other tools know it. " +
					"It is bounded in memory, processor time and processes, and has no network unless the operator allowed one.",
				Input: initializeInput, Scope: auth.ScopeRun,
				Run: profile.Typed(initializeInput, s.initialize),
			},
			{
				Name:        "copy_project",
				Description: "Copy a directory of this machine, with all that is in it, into the sandbox.",
				Input:       copyProjectInput, Scope: auth.ScopeFiles,
				Run: profile.Typed(copyProjectInput, s.copyProject),
			},
			documented,
			write,
			{
				Name: "sandbox_exec",
				Description: "Run shell commands in the sandbox, in order until one fails, each in a new shell as root in " + appDir +
					". Returns what they wrote.",
				Input: execInput, Scope: auth.ScopeRun,
				Run: profile.Typed(execInput, s.exec),
			},
			{
				Name:        "copy_file",
				Description: "Copy one file of this machine into the sandbox.",
				Input:       copyFileInput, Scope: auth.ScopeFiles,
				Run: profile.Typed(copyFileInput, s.copyFile),
			},
			{
				Name:        "copy_file_from_sandbox",
				Description: "Copy one file of the sandbox to this machine.",
				Input:       copyOutInput, Scope: auth.ScopeFiles, Destructive: true,
				Run: profile.Typed(copyOutInput, s.copyOut),
			},
			{
				Name:        "sandbox_stop",
				Description: "Stop the sandbox and remove all that is in it. What runs in it has ten seconds to end by itself.",
				Input:       stopInput, Scope: auth.ScopeRun, Destructive: true,
				Run: profile.Typed(stopInput, s.stop),
			},
		},
		Resources: []profile.Resource{{
			Template:    "containers://{id}/logs",
			Name:        "Container Logs",
			Description: "Everything that commands wrote in the sandbox, in order; then the same stdout and stderr apart. Subscribe to hear of more.",
			MIMEType:    "text/plain",
			SandboxID:   sandboxOf,
			Read:        s.logs,
		}},
	}
}

// sandboxOf returns the id of the sandbox in containers://ID/logs.
func sandboxOf(u *url.URL) string {
	if u.Scheme != "containers" || u.Path != "/logs" {
		return ""
	}
	return u.Host
}

// workDir returns the working directory of commands in a sandbox.
func (s *server) workDir(ctx context.Context, p sandbox.Principal, id string) (string, error) {
	f, err := s.opts.Engine.StatFile(ctx, p, id, appDir)
	if err == nil && f.Type == sandbox.TypeDirectory {
		return appDir, nil
	}
	if err == nil {
		return sandbox.WorkDir, nil
	}
	if _, gone := s.opts.Engine.Get(ctx, p, id); gone != nil || sandbox.KindOf(err) != sandbox.NotFound {
		return "", errors.Join(gone, err)
	}
	return sandbox.WorkDir, nil
}

// resolve makes a path in the sandbox absolute.
func resolve(dir, name string) string {
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return path.Clean(name)
}

// makeWorkDir runs in every new sandbox. It makes the user the owner of the
// directory, because the user's programs also write there.
const makeWorkDir = `mkdir 2>/dev/null -p "$1" && { chown "$2:$2" "$1" 2>/dev/null || :; }`

func (s *server) initialize(ctx context.Context, c profile.Call, in struct {
	Image string `json:"image"`
}) (profile.Result, error) {
	r := sandbox.CreateRequest{Image: in.Image, Writable: []string{appDir}, Limits: sandbox.Limits{Idle: s.opts.Idle}}
	var sb sandbox.Sandbox
	var note string
	var err error
	if in.Image == "" || in.Image == defaultImage {
		sb, note, err = profile.CreateDefault(ctx, s.opts.Options, c.Principal, r, defaultImage)
	} else {
		sb, err = s.opts.Engine.Create(ctx, c.Principal, r)
	}
	if err != nil {
		return profile.Result{}, err
	}
	run, err := c.Run(ctx, sandbox.RunRequest{SandboxID: sb.ID, Dir: "/", Root: true,
		Argv: []string{"/bin/sh", "-c", makeWorkDir, "sh", appDir, userID}})
	if err != nil {
		// The caller will not learn the sandbox's id.
		s.discard(ctx, c.Principal, sb.ID)
		return profile.Result{}, err
	}
	res := profile.Text("container_id: " + sb.ID)
	if note != "" {
		res.Texts = append(res.Texts, note)
	}
	if run.Verdict.Code != sandbox.OK {
		res.Texts = append(res.Texts, "note: this driver keeps an image as it is; commands run in "+sandbox.WorkDir+", not in "+appDir)
	}
	return res, nil
}

// discard stops a sandbox whose id the caller does not get.
func (s *server) discard(ctx context.Context, p sandbox.Principal, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := s.opts.Engine.Stop(ctx, p, id); err != nil {
		s.opts.Log.Error("stop a sandbox that was not ready", "sandbox", id, "error", err)
	}
}

// given takes pairs of names and values, and returns an error for the first empty
// value, in the original's words.
func given(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return profile.Missing(pairs[i])
		}
	}
	return nil
}

func (s *server) write(ctx context.Context, c profile.Call, in struct {
	ID       string `json:"container_id"`
	Name     string `json:"file_name"`
	Contents string `json:"file_contents"`
	Dir      string `json:"dest_dir"`
}) (profile.Result, error) {
	if err := given("container_id", in.ID, "file_name", in.Name); err != nil {
		return profile.Result{}, err
	}
	dir, err := s.workDir(ctx, c.Principal, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	full := resolve(resolve(dir, in.Dir), in.Name)
	if err := s.opts.Engine.WriteFileAsRoot(ctx, c.Principal, in.ID, full, strings.NewReader(in.Contents)); err != nil {
		return profile.Result{}, err
	}
	return profile.Text("Successfully wrote file " + full + " to container " + in.ID), nil
}
