//go:build !linux

package network

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// errLinux says that processes of gateways are for Linux.
var errLinux = sandbox.Errorf(sandbox.Unsupported, "the network's process runs on Linux only")

// Ask would return what a process counted, and the policy in force.
func Ask(context.Context, string, int64) (sandbox.Traffic, sandbox.Network, error) {
	return sandbox.Traffic{}, "", errLinux
}

// Authority would return the certificate that a process signs with.
func Authority(context.Context, string) ([]byte, error) { return nil, errLinux }

// Change would put another policy in force.
func Change(context.Context, string, sandbox.Network) error { return errLinux }

// RemoveSocket would remove what a process left.
func RemoveSocket(string) error { return errLinux }
