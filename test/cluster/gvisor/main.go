// Command gvisor is runsc and its containerd shim in one file: it acts as the program by
// whose name it is called. It differs from gVisor's own shim in one point: a shim
// whose OOM score cannot be lowered starts nevertheless. Lowering it takes
// CAP_SYS_RESOURCE, which machines for tests often lack.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/containerd/containerd/namespaces"
	"github.com/containerd/containerd/runtime/v2/shim"
	gvisor "gvisor.dev/gvisor/pkg/shim/v1"
	runsc "gvisor.dev/gvisor/runsc/cli/maincli"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "containerd-shim-runsc-v1":
		shim.Run("io.containerd.runsc.v1", newShim)
	default: // runsc starts itself under names of its own
		runsc.Main()
	}
}

// unprivileged is gVisor's shim, but for its start.
type unprivileged struct{ shim.Shim }

func newShim(ctx context.Context, id string, publisher shim.Publisher, stop func()) (shim.Shim, error) {
	stock, err := gvisor.New(ctx, id, publisher, stop)
	return unprivileged{stock}, err
}

// StartShim starts the process that serves one container and returns the address
// of its socket, as containerd asks of a shim of version 2.
func (unprivileged) StartShim(ctx context.Context, opts shim.StartOpts) (string, error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	address, err := shim.SocketAddress(ctx, opts.Address, opts.ID)
	if err != nil {
		return "", err
	}
	listener, err := shim.NewSocket(address)
	if err != nil {
		return "", fmt.Errorf("listen on %s: %w", address, err)
	}
	listener.SetUnlinkOnClose(false) // the new process goes on with it
	defer listener.Close()
	socket, err := listener.File()
	if err != nil {
		return "", err
	}
	defer socket.Close()

	serve := exec.Command(self, "-namespace", namespace, "-address", opts.Address, "-publish-binary", opts.ContainerdBinary)
	serve.Args[0] = os.Args[0]
	serve.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	serve.ExtraFiles = []*os.File{socket} // a shim serves on descriptor 3
	if err := serve.Start(); err != nil {
		return "", err
	}
	if err := shim.WritePidFile("shim.pid", serve.Process.Pid); err != nil {
		_ = serve.Process.Kill()
		return "", err
	}
	if err := shim.WriteAddress("address", address); err != nil {
		_ = serve.Process.Kill()
		return "", err
	}
	return address, nil
}
