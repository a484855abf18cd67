//go:build !linux

package container

import (
	"io"
	"os"

	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// haveLinks means that boxes can have a network: only on Linux.
const haveLinks = false

type link struct{}

func (*link) close() {}

func lockNetwork(string) (*os.File, error) { return nil, nil }

func startLink(string, string, string, network.Options, io.ReadWriteCloser, *os.File) (*link, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "boxes have a network on Linux only")
}
