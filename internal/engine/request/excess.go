package request

import "github.com/glovebox-dev/glovebox/internal/sandbox"

// CreateExcess returns the part of a request for a sandbox that is above the defaults.
// Its errors are those of CheckCreate.
func (r *Rules) CreateExcess(req sandbox.CreateRequest) (sandbox.Excess, error) {
	limits, err := r.CheckCreate(&req)
	if err != nil {
		return sandbox.Excess{}, err
	}
	x := r.networkExcess(req.Network)
	x.Limits = limits.Above(r.Defaults)
	return x, nil
}

// NetworkExcess returns the part of a new policy that is above the default, for a
// sandbox with the policy has. Its errors are those of CheckNetwork.
func (r *Rules) NetworkExcess(asked, has sandbox.Network) (sandbox.Excess, error) {
	n, err := r.CheckNetwork(asked)
	if err != nil || !n.WiderThan(has) {
		return sandbox.Excess{}, err
	}
	return r.networkExcess(n), nil
}

func (r *Rules) networkExcess(n sandbox.Network) sandbox.Excess {
	if !n.WiderThan(r.Network) {
		return sandbox.Excess{}
	}
	return sandbox.Excess{Network: n, Default: r.Network}
}
