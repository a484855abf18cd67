package container

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The mount point of the volume with the guest's program, and the program in it.
const (
	GuestDir  = "/.glovebox"
	GuestName = "glovebox-guest"
	GuestPath = GuestDir + "/" + GuestName
)

const (
	homeDir = "/home/user"
	// maxOpenFiles bounds the file descriptors of each process.
	maxOpenFiles = 16384
	// guestThreads is the number of threads that the guest starts with. The limit
	// on processes counts them, so they are added to it.
	guestThreads = 24
)

// InstallArgs returns the arguments of the program of Glovebox's image, or of the guest's,
// that installs the guest into dir. Each of own is of the form MODE:DIRECTORY.
func InstallArgs(dir string, own ...string) []string {
	return append([]string{"install-guest", "--resolver", strings.Join(Resolvers(), ","), dir}, own...)
}

// RelayArgs returns the arguments of the guest's program as a relay: it connects
// its standard streams to the guest of its container.
func RelayArgs() []string { return []string{"relay"} }

// PacketRelayArgs are those of a relay to the packets of a box whose guest is its own
// tunnel: it has one user, and a network.
func PacketRelayArgs() []string { return append(RelayArgs(), "--tunnel") }

// guestArgs returns the arguments of the guest's program as the guest of a box. The
// guest sets the limits of processes itself: container engines differ in the limits
// that they allow, and add their own.
func guestArgs(rec *Record) []string {
	spec := &rec.Spec
	own := homeDir
	if spec.Workspace == "" {
		own = sandbox.WorkDir + "," + homeDir
	}
	args := []string{
		"serve", "--image-env", "--no-setid",
		"--threads", strconv.Itoa(guestThreads), "--nofile", strconv.Itoa(maxOpenFiles),
		"--cpus", strconv.FormatFloat(spec.Limits.CPUs, 'f', -1, 64),
		"--interpreter", driver.InterpreterAddress,
	}
	if rec.OneUser {
		args = append(args, "--self", "--hidden", "--leave-network")
		if rec.linked() {
			args = append(append(args, "--tunnel"), linkArgs()...)
		}
	} else {
		args = append(args, "--stdio", "--own", own)
	}
	if !spec.Detached {
		args = append(args, "--leased")
	}
	if rec.Disk != DiskMemory { // otherwise the root is read-only, and no link can be made
		args = append(args, "--sudo", driver.SudoDir)
	}
	if rec.Lease != nil {
		var unheld time.Duration
		if spec.Lease != nil {
			unheld = rec.Lease.Hold
		}
		args = append(args, "--lease", unheld.String())
	}
	if rec.Workspaces != "" {
		args = append(args, "--workspaces", WorkspacesDir)
	}
	return args
}

// tunnelArgs returns the arguments of the guest's program as a tunnel.
func tunnelArgs() []string { return append([]string{"tunnel"}, linkArgs()...) }

// linkArgs returns the arguments that describe a tunnel's interface.
func linkArgs() []string {
	args := []string{"--mtu", strconv.Itoa(network.MTU)}
	for _, p := range []netip.Prefix{network.Guest4, network.Guest6} {
		args = append(args, "--address", p.String())
	}
	return args
}

// OpenGuest opens the guest's program, if it can run on a platform of that name and
// architecture. The caller closes the file. The error wraps [driver.ErrUnavailable].
func OpenGuest(path, platform, architecture string) (*os.File, error) {
	const hint = "use a released program of glovebox, or build one with: make build"
	f, err := os.Open(path)
	if err != nil {
		return nil, Unavailable(sandbox.Errorf(sandbox.Unavailable, "open the guest's program: %w", err), hint)
	}
	bin, err := elf.NewFile(f)
	if err != nil {
		f.Close()
		return nil, Unavailable(sandbox.Errorf(sandbox.Unsupported, "this program of glovebox carries no guest, and cannot be one itself: it is not for Linux"), hint)
	}
	machine := map[string]elf.Machine{
		"x86_64": elf.EM_X86_64, "amd64": elf.EM_X86_64,
		"aarch64": elf.EM_AARCH64, "arm64": elf.EM_AARCH64,
	}[architecture]
	if machine != bin.Machine && machine != 0 {
		f.Close()
		return nil, Unavailable(sandbox.Errorf(sandbox.Unsupported, "%s runs on %s, and this program's guest is for %s", platform, architecture, bin.Machine),
			"use a program of glovebox for %s", architecture)
	}
	for _, p := range bin.Progs {
		if p.Type == elf.PT_INTERP {
			f.Close()
			return nil, Unavailable(sandbox.Errorf(sandbox.Unsupported, "the guest's program %s is not static", path), "build it with CGO_ENABLED=0")
		}
	}
	return f, nil
}

// Unavailable wraps err in [driver.ErrUnavailable], with a hint.
func Unavailable(err error, hint string, args ...any) error {
	return sandbox.WithHint(fmt.Errorf("%w: %w", driver.ErrUnavailable, err), hint, args...)
}

// GuestVolume returns the name of the volume with the guest's program, and the size
// of the program, which is the volume's only file. Each content has its own volume,
// so that several versions can run at once.
func GuestVolume(program io.Reader) (name string, size int64, err error) {
	h := sha256.New()
	size, err = io.Copy(h, program)
	if err != nil {
		return "", 0, fmt.Errorf("read the guest's program: %w", err)
	}
	return guestPrefix + hex.EncodeToString(h.Sum(nil)[:8]), size, nil
}
