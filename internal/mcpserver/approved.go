package mcpserver

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/approval"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An approvedEngine asks a person before a call exceeds the operator's defaults, for the
// tools of all profiles.
type approvedEngine struct {
	Engine
	approvals *approval.Approvals
}

// approved returns the engine with the approvals that o asks for.
func (o Options) approved(e Engine) Engine {
	if !o.ApproveNetwork && !o.ApproveLimits {
		return e
	}
	return approvedEngine{e, approval.New(approval.Policy{Network: o.ApproveNetwork, Limits: o.ApproveLimits})}
}

// askable returns ctx for a call that may have to ask a person.
func askable(ctx context.Context, c call) context.Context {
	token := transport.ProgressToken(c.req)
	return approval.WithCall(ctx, approval.Call{Principal: c.principal, Request: c.req, Wait: c.client().Wait(token != nil), Token: token})
}

func (e approvedEngine) mayCreate(ctx context.Context, r sandbox.CreateRequest) error {
	x, err := e.CreateExcess(r)
	if err != nil {
		return err
	}
	return e.approvals.Ask(ctx, "", x)
}

func (e approvedEngine) Create(ctx context.Context, p sandbox.Principal, r sandbox.CreateRequest) (sandbox.Sandbox, error) {
	if err := e.mayCreate(ctx, r); err != nil {
		return sandbox.Sandbox{}, err
	}
	return e.Engine.Create(ctx, p, r)
}

func (e approvedEngine) Start(ctx context.Context, p sandbox.Principal, r sandbox.RunRequest) (sandbox.Run, error) {
	if r.SandboxID == "" {
		if err := e.mayCreate(ctx, r.New); err != nil {
			return sandbox.Run{}, err
		}
	}
	return e.Engine.Start(ctx, p, r)
}

func (e approvedEngine) Install(ctx context.Context, p sandbox.Principal, r sandbox.PackagesRequest) (sandbox.Run, error) {
	if r.SandboxID == "" {
		if err := e.mayCreate(ctx, r.New); err != nil {
			return sandbox.Run{}, err
		}
	}
	return e.Engine.Install(ctx, p, r)
}

func (e approvedEngine) Languages(ctx context.Context, p sandbox.Principal, id string, r sandbox.CreateRequest) ([]sandbox.Language, string, error) {
	if id == "" {
		if err := e.mayCreate(ctx, r); err != nil {
			return nil, "", err
		}
	}
	return e.Engine.Languages(ctx, p, id, r)
}

func (e approvedEngine) SetNetwork(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error) {
	x, err := e.NetworkExcess(ctx, p, id, n)
	if err == nil {
		err = e.approvals.Ask(ctx, id, x)
	}
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return e.Engine.SetNetwork(ctx, p, id, n)
}
