package operator

import (
	"context"
	"errors"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Engine does the operator's requests in the name of an object's principal.
type Engine interface {
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	Stop(ctx context.Context, p sandbox.Principal, id string) error
	StopRun(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	Follow(ctx context.Context, p sandbox.Principal, runID string, emit func(sandbox.StreamName, []byte) error) error
	ReadOutput(ctx context.Context, p sandbox.Principal, runID string, stream sandbox.StreamName, offset, limit int64) (data []byte, total int64, err error)
	Connections(ctx context.Context, p sandbox.Principal, id string, limit int) ([]sandbox.Connection, error)
	Services(ctx context.Context, p sandbox.Principal, sandboxID string) ([]sandbox.Run, error)
	RemoveSnapshot(ctx context.Context, p sandbox.Principal, ref string) error
	Sweep(ctx context.Context) error
}

// Options are the parameters of [New]. All are required.
type Options struct {
	Store  *store.Store
	Engine Engine
	Driver driver.Driver
	// Quota is the quota of each workspace.
	Quota sandbox.WorkspaceUsage
	// Spawn runs a function in a goroutine for which the caller waits.
	Spawn func(func())
}

// An Operator sees and stops the objects of all principals. It is safe for
// concurrent use.
type Operator struct {
	store  *store.Store
	engine Engine
	driver driver.Driver
	quota  sandbox.WorkspaceUsage
	spawn  func(func())
}

// New returns an Operator. It has no resources of its own.
func New(o Options) *Operator {
	return &Operator{store: o.Store, engine: o.Engine, driver: o.Driver, quota: o.Quota, spawn: o.Spawn}
}

// A Sandbox is a sandbox and its principal.
type Sandbox struct {
	sandbox.Sandbox
	Principal sandbox.Principal `json:"principal"`
	// Services are the services whose runs are in progress.
	Services []sandbox.Run `json:"services,omitempty"`
}

// Sandboxes returns every live sandbox of the state directory.
func (o *Operator) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	records, err := o.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	var list []Sandbox
	for _, r := range records {
		// The engine adds the state that the record lacks.
		box, err := o.engine.Get(ctx, r.Principal, r.ID)
		if errors.Is(err, sandbox.NotFound) || err == nil && box.State == sandbox.Stopped {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		services, err := o.engine.Services(ctx, r.Principal, r.ID)
		if err != nil && !errors.Is(err, sandbox.NotFound) {
			return nil, err
		}
		list = append(list, Sandbox{box, r.Principal, services})
	}
	return list, nil
}

// record returns the record of any principal's sandbox.
func (o *Operator) record(ctx context.Context, id string) (store.Sandbox, error) {
	r, err := o.store.Sandbox(ctx, id)
	if errors.Is(err, sandbox.NotFound) {
		err = sandbox.WithHint(err, "glovebox ps lists sandboxes")
	}
	return r, err
}

// StopSandbox stops any principal's sandbox. The error wraps [sandbox.NotFound]
// if there is none.
func (o *Operator) StopSandbox(ctx context.Context, id string) error {
	if !sandbox.ValidID(id) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not the name of a sandbox", id), "glovebox ps lists them")
	}
	r, err := o.record(ctx, id)
	if err != nil {
		return err
	}
	return o.engine.Stop(ctx, r.Principal, id)
}

// StopRun ends any principal's run, whichever process holds its sandbox. The error
// wraps [sandbox.NotFound] if there is none.
func (o *Operator) StopRun(ctx context.Context, id string) (sandbox.Run, error) {
	r, err := o.Run(ctx, id)
	if err != nil {
		return sandbox.Run{}, err
	}
	return o.engine.StopRun(ctx, r.Principal, id)
}

// StopSandboxesOf stops the sandboxes of some principals, and calls stopped for
// each.
func (o *Operator) StopSandboxesOf(ctx context.Context, principals []sandbox.Principal, stopped func(id string)) error {
	list, err := o.store.LiveSandboxes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range list {
		if !slices.Contains(principals, r.Principal) {
			continue
		}
		switch err := o.engine.Stop(ctx, r.Principal, r.ID); {
		case err == nil:
			stopped(r.ID)
		case !errors.Is(err, sandbox.NotFound): // else it ended by itself
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// logsPiece is the maximum size of one read of output, in bytes.
const logsPiece = 256 << 10

// Logs calls emit with the output of a run. With follow, it continues until the
// run has ended; otherwise it emits the existing output. A text stands for output
// that was not kept.
func (o *Operator) Logs(ctx context.Context, id string, follow bool, emit func(sandbox.StreamName, []byte) error) error {
	run, err := o.store.Run(ctx, id)
	if err != nil {
		return err
	}
	if follow || run.Status == sandbox.RunFinished {
		return o.engine.Follow(ctx, run.Principal, id, emit)
	}
	for _, stream := range []sandbox.StreamName{sandbox.Stdout, sandbox.Stderr} {
		for offset, total := int64(0), int64(1); offset < total; {
			var data []byte
			data, total, err = o.engine.ReadOutput(ctx, run.Principal, id, stream, offset, logsPiece)
			next := offset + int64(len(data))
			if gap, ok := errors.AsType[*sandbox.Gap](err); ok && gap.To > offset {
				data, next, total = []byte(sandbox.NotKept(gap.To-offset)), gap.To, gap.To+1
			} else if err != nil {
				return err
			}
			if len(data) == 0 {
				break
			}
			if err := emit(stream, data); err != nil {
				return err
			}
			offset = next
		}
	}
	return nil
}

// Connections returns the latest recorded connections of any principal's
// sandbox, at most limit, the oldest first. The error wraps [sandbox.NotFound]
// if there is no such sandbox.
func (o *Operator) Connections(ctx context.Context, id string, limit int) ([]sandbox.Connection, error) {
	if !sandbox.ValidID(id) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not the name of a sandbox", id), "glovebox ps lists them")
	}
	r, err := o.record(ctx, id)
	if err != nil {
		return nil, err
	}
	return o.engine.Connections(ctx, r.Principal, id, limit)
}

// A Workspace is a workspace and its principal.
type Workspace struct {
	sandbox.Workspace
	Principal sandbox.Principal `json:"principal"`
}

// Workspaces returns every workspace of the state directory.
func (o *Operator) Workspaces(ctx context.Context) ([]Workspace, error) {
	records, err := o.store.Workspaces(ctx, "")
	if err != nil {
		return nil, err
	}
	list := []Workspace{}
	for _, r := range records {
		r.Quota = o.quota
		list = append(list, Workspace{r.Workspace, r.Principal})
	}
	return list, nil
}
