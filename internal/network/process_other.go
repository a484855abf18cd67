//go:build !linux

package network

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// errLinux means that gateways' processes run on Linux only.
var errLinux = sandbox.Errorf(sandbox.Unsupported, "the network process runs on Linux only")

// Ask returns an error that wraps [sandbox.Unsupported].
func Ask(context.Context, string, int64) (sandbox.Traffic, sandbox.Network, error) {
	return sandbox.Traffic{}, "", errLinux
}

// Authority returns an error that wraps [sandbox.Unsupported].
func Authority(context.Context, string) ([]byte, error) { return nil, errLinux }

// Change returns an error that wraps [sandbox.Unsupported].
func Change(context.Context, string, sandbox.Network, []sandbox.Secret) error { return errLinux }

// RemoveSocket returns an error that wraps [sandbox.Unsupported].
func RemoveSocket(string) error { return errLinux }
