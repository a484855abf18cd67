package guestapi

import "context"

// PathLimits answers what the sandbox's kernel says of the limits that it
// keeps, as [Limits]. It is ours, beyond E2B's protocol.
const PathLimits = "/limits"

// Limits are what the guest reads back from the kernel it runs on.
type Limits struct {
	// DiskBytes is the size of the root file system, Processes the limit on
	// processes of each user.
	DiskBytes int64 `json:"diskBytes"`
	Processes int64 `json:"processes"`
	// NoNewPrivs says that no program can gain privileges by being executed;
	// Capabilities, in hexadecimal, are those that a program keeps when it
	// becomes another user's.
	NoNewPrivs   bool   `json:"noNewPrivs"`
	Capabilities string `json:"capabilities"`
	// Interfaces are the network's.
	Interfaces []string `json:"interfaces"`
}

// Limits asks the guest for the limits it lives under.
func (c *Client) Limits(ctx context.Context) (*Limits, error) {
	var l Limits
	if err := c.call(ctx, "read limits", PathLimits, "", struct{}{}, &l); err != nil {
		return nil, err
	}
	return &l, nil
}
