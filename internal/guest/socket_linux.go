package guest

import (
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DefaultSocket is the default path of the guest's socket.
const DefaultSocket = "/run/glovebox/guest.sock"

// socketFlag adds the flag that names the guest's socket.
func socketFlag(fs *flag.FlagSet) *string {
	return fs.String("socket", DefaultSocket, "the guest's Unix socket")
}

// listen makes the guest's socket, in a directory that only its own user can
// enter. It removes the socket of an earlier guest.
func listen(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// The umask gives the socket its mode at its creation. No other code runs
	// yet.
	old := unix.Umask(0o177)
	defer unix.Umask(old)
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}
