// Package complete suggests values for the arguments of prompts and for the variables of
// resource templates.
//
// Only package mcpserver imports it. A [Completer] is a table of sources. It asks the
// engine at each request, with the identity of the caller, and keeps nothing.
package complete

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// MaxValues is the protocol's limit for suggestions.
const MaxValues = 100

// maxRuns bounds the runs that a completion considers.
const maxRuns = 1000

// Engine is the part of package engine that completions use.
type Engine interface {
	List(ctx context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error)
	LastRuns(ctx context.Context, p sandbox.Principal, limit int) ([]sandbox.ListedRun, error)
	ListFiles(ctx context.Context, p sandbox.Principal, id, path string, depth int) (files []sandbox.File, more bool, err error)
	Workspaces(ctx context.Context, p sandbox.Principal) ([]sandbox.Workspace, error)
}

// An Argument names what is completed: the variable of a resource template by its URI, or
// the argument of a prompt by its name.
type Argument struct{ Ref, Name string }

// A Source suggests values for an argument.
type Source struct {
	// Scope is the scope that the caller must have; others get no suggestions.
	Scope  auth.Scope
	values func(ctx context.Context, e Engine, p sandbox.Principal, value string, given map[string]string) (values []string, more bool, err error)
}

// A Completer has the source of each argument. Arguments without a source have no
// suggestions.
type Completer struct {
	Engine  Engine
	Sources map[Argument]Source
}

// Complete returns the values that begin with what is typed, in the order of the source.
// An object that does not exist, such as a directory, has no suggestions. It has an error
// of the engine's kind if the engine cannot answer.
func (c Completer) Complete(ctx context.Context, id auth.Identity, p *mcp.CompleteParams) (mcp.CompletionResultDetails, error) {
	d := mcp.CompletionResultDetails{Values: []string{}}
	if p.Ref == nil {
		return d, nil
	}
	ref := p.Ref.URI
	if p.Ref.Type == "ref/prompt" {
		ref = p.Ref.Name
	}
	source, ok := c.Sources[Argument{ref, p.Argument.Name}]
	if !ok || !id.Reads(source.Scope) {
		return d, nil
	}
	var given map[string]string
	if p.Context != nil {
		given = p.Context.Arguments
	}
	values, more, err := source.values(ctx, c.Engine, id.Principal, p.Argument.Value, given)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	d.HasMore = more
	for _, v := range values {
		if !strings.HasPrefix(v, p.Argument.Value) {
			continue
		}
		d.Total++
		if len(d.Values) < MaxValues {
			d.Values = append(d.Values, v)
		} else {
			d.HasMore = true
		}
	}
	if more {
		d.Total = 0 // not known
	}
	return d, nil
}

// Sandboxes suggests the IDs of the caller's live sandboxes.
func Sandboxes() Source {
	return Source{auth.ScopeRun, func(ctx context.Context, e Engine, p sandbox.Principal, _ string, _ map[string]string) (ids []string, _ bool, err error) {
		sbs, err := e.List(ctx, p)
		for _, sb := range sbs {
			if sb.State != sandbox.Stopped {
				ids = append(ids, sb.ID)
			}
		}
		return ids, false, err
	}}
}

// Runs suggests the IDs of the caller's runs that pass a filter, newest first.
func Runs(pass func(sandbox.Run) bool) Source {
	return Source{auth.ScopeRun, func(ctx context.Context, e Engine, p sandbox.Principal, _ string, _ map[string]string) (ids []string, _ bool, err error) {
		runs, err := e.LastRuns(ctx, p, maxRuns)
		for _, r := range runs {
			if pass(r.Run) {
				ids = append(ids, r.ID)
			}
		}
		return ids, len(runs) == maxRuns, err
	}}
}

// Workspaces suggests the names of the caller's workspaces.
func Workspaces() Source {
	return Source{auth.ScopeFiles, func(ctx context.Context, e Engine, p sandbox.Principal, _ string, _ map[string]string) (names []string, _ bool, err error) {
		all, err := e.Workspaces(ctx, p)
		for _, w := range all {
			names = append(names, w.Name)
		}
		return names, false, err
	}}
}

// FilesOfSandbox suggests paths from the root of a sandbox, without the leading slash.
// The argument id names the sandbox. It lists one directory.
func FilesOfSandbox(id string) Source {
	return Source{auth.ScopeFiles, func(ctx context.Context, e Engine, p sandbox.Principal, value string, given map[string]string) ([]string, bool, error) {
		if given[id] == "" {
			return nil, false, nil
		}
		return list(ctx, e, p, given[id], "/", value)
	}}
}

// FilesOfWorkspace suggests paths in a workspace, which the argument of that name names.
// It lists one directory, in a running sandbox with the workspace. Without such a sandbox
// there are no suggestions, because a completion starts none.
func FilesOfWorkspace(argument string) Source {
	return Source{auth.ScopeFiles, func(ctx context.Context, e Engine, p sandbox.Principal, value string, given map[string]string) ([]string, bool, error) {
		name := given[argument]
		if name == "" {
			return nil, false, nil
		}
		sbs, err := e.List(ctx, p)
		if err != nil {
			return nil, false, err
		}
		for _, sb := range sbs {
			if sb.Workspace == name && sb.State == sandbox.Running {
				return list(ctx, e, p, sb.ID, sandbox.WorkDir+"/", value)
			}
		}
		return nil, false, nil
	}}
}

// list suggests the entries of the directory of value below root, with a slash after
// directories.
func list(ctx context.Context, e Engine, p sandbox.Principal, id, root, value string) (paths []string, more bool, err error) {
	files, more, err := e.ListFiles(ctx, p, id, root+value[:strings.LastIndexByte(value, '/')+1], 1)
	for _, f := range files {
		path, ok := strings.CutPrefix(f.Path, root)
		if !ok {
			continue // such as for .. in value
		}
		if f.Type == sandbox.TypeDirectory {
			path += "/"
		}
		paths = append(paths, path)
	}
	return paths, more, err
}
