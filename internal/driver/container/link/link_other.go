//go:build !linux

package link

import (
	"io"
	"os"

	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Available means that boxes can have a network on this platform: only on Linux.
const Available = false

// A Link carries packets. There is none on this platform.
type Link struct{}

// Close does nothing.
func (*Link) Close() {}

// Lock returns no lock.
func Lock(string) (*os.File, error) { return nil, nil }

// Start returns an error.
func Start(string, string, string, network.Options, io.ReadWriteCloser, *os.File) (*Link, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "boxes have a network on Linux only")
}
