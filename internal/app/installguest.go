package app

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/probe"
	"github.com/glovebox-dev/glovebox/internal/guestbin"
)

// InstallGuest puts the guest's program, and the files that go with it, into dir, and
// makes the directories own, as the guest's command says. The resolvers are those of a box
// with a network, separated by commas. The init container of a Pod runs it: see package
// kubernetes.
func InstallGuest(ctx context.Context, resolvers, dir string, own ...string) error {
	// Nothing but dir can be written there.
	unpacked := filepath.Join(dir, "unpacked")
	path, err := guestbin.Path(unpacked)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"install-guest", "--resolver", resolvers, dir}, own...)...)
	cmd.Args[0] = guestbin.Name // also if this program acts as the guest
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install the guest: %w: %s", err, out)
	}
	return os.RemoveAll(unpacked)
}

// ProbeNetwork listens, or dials the Pod at address if it is not "", and returns the exit
// status. The Pods of the doctor of a cluster run it: see package probe.
func ProbeNetwork(ctx context.Context, address string, getenv func(string) string) (int, error) {
	return probe.Main(ctx, address, getenv)
}
