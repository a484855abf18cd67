package main

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/mcpserver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An emptyEngine has no sandboxes and makes none. The suite only lists Glovebox's
// tools, and calls the fixtures.
type emptyEngine struct{}

var _ mcpserver.Engine = emptyEngine{}

func none(kind, id string) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no %s %q", kind, id)
}

func makesNone() error {
	return sandbox.Errorf(sandbox.Unsupported, "this server makes no sandboxes")
}

func (emptyEngine) Create(context.Context, sandbox.Principal, sandbox.CreateRequest) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, makesNone()
}

func (emptyEngine) Get(_ context.Context, _ sandbox.Principal, id string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, none("sandbox", id)
}

func (emptyEngine) List(context.Context, sandbox.Principal) ([]sandbox.Sandbox, error) {
	return nil, nil
}

func (emptyEngine) SetNetwork(_ context.Context, _ sandbox.Principal, id string, _ sandbox.Network) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, none("sandbox", id)
}

func (emptyEngine) CreateExcess(sandbox.CreateRequest) (sandbox.Excess, error) {
	return sandbox.Excess{}, makesNone()
}

func (emptyEngine) NetworkExcess(_ context.Context, _ sandbox.Principal, id string, _ sandbox.Network) (sandbox.Excess, error) {
	return sandbox.Excess{}, none("sandbox", id)
}

func (emptyEngine) Stop(_ context.Context, _ sandbox.Principal, id string) error {
	return none("sandbox", id)
}

func (emptyEngine) KeyedRun(context.Context, sandbox.Principal, sandbox.RunKey) (string, error) {
	return "", none("run", "")
}

func (emptyEngine) Start(context.Context, sandbox.Principal, sandbox.RunRequest) (sandbox.Run, error) {
	return sandbox.Run{}, makesNone()
}

func (emptyEngine) Install(context.Context, sandbox.Principal, sandbox.PackagesRequest) (sandbox.Run, error) {
	return sandbox.Run{}, makesNone()
}

func (emptyEngine) Languages(context.Context, sandbox.Principal, string, sandbox.CreateRequest) ([]sandbox.Language, string, error) {
	return nil, "", makesNone()
}

func (emptyEngine) Contexts(_ context.Context, _ sandbox.Principal, id string) ([]sandbox.Context, error) {
	return nil, none("sandbox", id)
}

func (emptyEngine) RemoveContext(_ context.Context, _ sandbox.Principal, id, _, _ string) error {
	return none("sandbox", id)
}

func (emptyEngine) Wait(_ context.Context, _ sandbox.Principal, id string) (sandbox.Run, error) {
	return sandbox.Run{}, none("run", id)
}

func (emptyEngine) Follow(_ context.Context, _ sandbox.Principal, id string, _ func(sandbox.StreamName, []byte) error) error {
	return none("run", id)
}

func (emptyEngine) Output(_ context.Context, _ sandbox.Principal, id string, _ int) (sandbox.Output, error) {
	return sandbox.Output{}, none("run", id)
}

func (emptyEngine) Results(_ context.Context, _ sandbox.Principal, id string) (sandbox.Results, error) {
	return sandbox.Results{}, none("run", id)
}

func (emptyEngine) ReadOutput(_ context.Context, _ sandbox.Principal, id string, _ sandbox.StreamName, _, _ int64) ([]byte, int64, error) {
	return nil, 0, none("run", id)
}

func (emptyEngine) StopRun(_ context.Context, _ sandbox.Principal, id string) (sandbox.Run, error) {
	return sandbox.Run{}, none("run", id)
}

func (emptyEngine) LastRuns(context.Context, sandbox.Principal, int) ([]sandbox.ListedRun, error) {
	return nil, nil
}

func (emptyEngine) Runs(_ context.Context, _ sandbox.Principal, id string, _ int) ([]sandbox.Run, error) {
	return nil, none("sandbox", id)
}

func (emptyEngine) SendInput(_ context.Context, _ sandbox.Principal, id string, _ []byte, _ bool) error {
	return none("run", id)
}

func (emptyEngine) ReadFile(_ context.Context, _ sandbox.Principal, id, _ string, _, _ int64) (io.ReadCloser, int64, error) {
	return nil, 0, none("sandbox", id)
}

func (emptyEngine) WriteFile(_ context.Context, _ sandbox.Principal, id, _ string, _ io.Reader, _ bool) error {
	return none("sandbox", id)
}

func (emptyEngine) StatFile(_ context.Context, _ sandbox.Principal, id, _ string) (sandbox.File, error) {
	return sandbox.File{}, none("sandbox", id)
}

func (emptyEngine) WaitReady(_ context.Context, _ sandbox.Principal, id string) (sandbox.Run, error) {
	return sandbox.Run{}, none("run", id)
}

func (emptyEngine) Services(_ context.Context, _ sandbox.Principal, id string) ([]sandbox.Run, error) {
	return nil, none("sandbox", id)
}

func (emptyEngine) EditFile(_ context.Context, _ sandbox.Principal, id, _ string, _ []sandbox.Edit) (sandbox.Edited, error) {
	return sandbox.Edited{}, none("sandbox", id)
}

func (emptyEngine) SearchFiles(_ context.Context, _ sandbox.Principal, id string, _ sandbox.SearchRequest) (sandbox.Found, error) {
	return sandbox.Found{}, none("sandbox", id)
}

func (emptyEngine) Diff(_ context.Context, _ sandbox.Principal, id string, _ sandbox.DiffRequest) (sandbox.Diff, error) {
	return sandbox.Diff{}, none("sandbox", id)
}

func (emptyEngine) GlobFiles(_ context.Context, _ sandbox.Principal, id, _, _ string, _ int) (sandbox.Listing, error) {
	return sandbox.Listing{}, none("sandbox", id)
}

func (emptyEngine) ListFiles(_ context.Context, _ sandbox.Principal, id, _ string, _ int) ([]sandbox.File, bool, error) {
	return nil, false, none("sandbox", id)
}

func (emptyEngine) Workspaces(context.Context, sandbox.Principal) ([]sandbox.Workspace, error) {
	return nil, nil
}

func (emptyEngine) Workspace(_ context.Context, _ sandbox.Principal, name string) (sandbox.Workspace, error) {
	return sandbox.Workspace{}, none("workspace", name)
}

func (emptyEngine) DeleteWorkspace(_ context.Context, _ sandbox.Principal, name string) error {
	return none("workspace", name)
}

func (emptyEngine) TakeSnapshot(_ context.Context, _ sandbox.Principal, id, _ string) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{}, none("sandbox", id)
}

func (emptyEngine) Snapshots(context.Context, sandbox.Principal, sandbox.SnapshotFilter) ([]sandbox.Snapshot, error) {
	return nil, nil
}

func (emptyEngine) Snapshot(_ context.Context, _ sandbox.Principal, ref string) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{}, none("snapshot", ref)
}

func (emptyEngine) RemoveSnapshot(_ context.Context, _ sandbox.Principal, ref string) error {
	return none("snapshot", ref)
}

func (emptyEngine) Rollback(_ context.Context, _ sandbox.Principal, id, _ string, _ bool) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{}, none("sandbox", id)
}

func (emptyEngine) Fork(_ context.Context, _ sandbox.Principal, id string, _ sandbox.ForkRequest) ([]sandbox.Fork, error) {
	return nil, none("sandbox", id)
}
