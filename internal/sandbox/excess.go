package sandbox

// An Excess is the part of a request that is above the operator's defaults, and within
// the operator's maxima.
type Excess struct {
	// Network is the policy that was asked for, if it allows more than Default and
	// more than the sandbox has. Otherwise it is empty.
	Network, Default Network
	// Limits describes the limits that are above the defaults; see [Limits.Above].
	Limits []string
}
