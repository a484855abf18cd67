package message

import "github.com/glovebox-dev/glovebox/internal/sandbox"

// A Report contains the supervisor's data for the receipt of a box. The driver,
// which is outside of the box's user namespace, reads the rest.
type Report struct {
	Record Record `json:"record"`
	Sentry int    `json:"sentry"`
	Paused bool   `json:"paused,omitempty"`
	Saved  bool   `json:"saved,omitempty"` // there is no sentry
	// Network is the policy in force, if the box has a network that answers.
	Network sandbox.Network `json:"network,omitempty"`
	Walls   []string        `json:"walls,omitempty"`   // the confinement of that network's process
	Watched bool            `json:"watched,omitempty"` // whether the supervisor watches the memory now
}
