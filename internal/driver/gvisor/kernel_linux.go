package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/google/subcommands"
	"github.com/moby/sys/capability"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/hostmm"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/glovebox-dev/glovebox/internal/network"
)

// gVisor's kernel begins with all capabilities, to make the mounts of a small root
// of its own. Then it executes itself again with the few that it needs:
// capabilities are a thread's, and gVisor sets those of one thread only. To begin
// anew takes five to seven milliseconds of a processor.
//
// Here the same function of gVisor's makes the root, the capabilities are set in
// all threads, and the process goes on. It has those that gVisor leaves it, none
// of them inheritable or ambient, as nothing is executed any more.

// kernelMain is gVisor's program for the kernel of a box of this specification. It
// does not return.
func kernelMain(spec *specs.Spec) {
	cli.Run(map[subcommands.Command]string{&bootCommand{spec: spec}: ""}, nil)
}

//go:linkname setUpChroot gvisor.dev/gvisor/runsc/cmd.setUpChroot
func setUpChroot(*specs.Spec, *config.Config) error

//go:linkname directfsCaps gvisor.dev/gvisor/runsc/cmd.directfsSandboxLinuxCaps
var directfsCaps *specs.LinuxCapabilities

// errNotGVisors says that a variable is linked to by a name that gVisor does not
// have any more, which the linker lets pass.
var errNotGVisors = errors.New("gVisor's list of capabilities is not where it was")

// bootCommand is the kernel.
type bootCommand struct {
	cmd.Boot
	spec *specs.Spec
}

// Execute implements subcommands.Command.
func (b *bootCommand) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	if err := enterKernelRoot(b.spec, f, args[0].(*config.Config)); err != nil {
		util.Fatalf("enter root: %v", err)
	}
	// Only now, as threads that there are earlier would have to be waited for to
	// give up their capabilities.
	if err := serveMounts(f); err != nil {
		util.Fatalf("serve mounts: %v", err)
	}
	observeStart(processLimitOf(b.spec))
	giveBackWhenAsked()
	pollLate()
	return b.Boot.Execute(ctx, f, args...)
}

// enterKernelRoot does what the kernel's first start is for.
func enterKernelRoot(spec *specs.Spec, f *flag.FlagSet, conf *config.Config) error {
	if spec == nil {
		return errors.New("no specification")
	}
	if flag.Get(f.Lookup("attached").Value) == true {
		// The maker's end is to be the kernel's from here on, not only later.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("set parent death signal: %w", err)
		}
	}
	if err := leaveCgroup(); err != nil {
		return err
	}
	if product, err := os.ReadFile("/sys/devices/virtual/dmi/id/product_name"); err == nil {
		if err := f.Set("product-name", strings.TrimSpace(string(product))); err != nil {
			return err
		}
	}
	if conf.AppHugePages {
		for _, name := range []string{"shmem_enabled", "defrag"} {
			value, err := hostmm.ReadTransparentHugepageEnum(name)
			if err != nil {
				continue // a kernel without; gVisor goes on, too
			}
			if err := f.Set("host-thp-"+strings.ReplaceAll(name, "_", "-"), value); err != nil {
				return err
			}
		}
	}
	if err := setUpChroot(spec, conf); err != nil {
		return err
	}
	if directfsCaps == nil {
		return errNotGVisors
	}
	// The platform, systrap, traces the processes of programs.
	return leaveProc(f, append(slices.Clone(directfsCaps.Bounding), "CAP_SYS_PTRACE"))
}

// leaveCgroup closes what the Go runtime has opened of the process's control
// group, to follow its limit on processors as long as the process lives. It finds
// none any more, as it does where gVisor starts the process anew.
func leaveCgroup() error {
	const open = "/proc/self/fd"
	entries, err := os.ReadDir(open)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, err := os.Readlink(filepath.Join(open, e.Name()))
		if err != nil || !slices.Contains([]string{"cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"}, filepath.Base(name)) {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		if err := unix.Dup3(int(os.Stdin.Fd()), fd, unix.O_CLOEXEC); err != nil { // /dev/null
			return os.NewSyscallError("dup3", err)
		}
	}
	return nil
}

// leaveProc starts the process that is to unmount /proc, for which this one will
// have no right, gives up all capabilities but keep, and says so in the flags.
func leaveProc(f *flag.FlagSet, keep []string) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	told := os.NewFile(uintptr(pipe[0]), "pipe")
	defer told.Close()
	if _, err := startUmounter(told, "/proc"); err != nil { // gVisor waits for it
		return err
	}
	if err := keepCapabilities(keep); err != nil {
		return err
	}
	return errors.Join(f.Set("proc-mount-sync-fd", strconv.Itoa(pipe[1])), f.Set("setup-root", "false"), f.Set("apply-caps", "false"))
}

// keepCapabilities leaves all threads of the process these capabilities, of those
// that they have, and no others; and none in the bounding set, lest a program that
// is executed has them for being root's. The maker set no_new_privs to the same
// end.
func keepCapabilities(names []string) error {
	on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if on != 1 {
		return errors.New("no_new_privs is not set")
	}
	if empty, err := network.EmptyBoundingSet(); err != nil || !empty {
		return errors.Join(errors.New("the bounding set is not empty"), err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	var keep [2]uint32
	known := 0
	for _, c := range capability.ListKnown() {
		if slices.Contains(names, "CAP_"+strings.ToUpper(c.String())) {
			keep[c/32] |= 1 << (c % 32)
			known++
		}
	}
	if known != len(names) {
		return fmt.Errorf("of the capabilities %q only %d are known", names, known)
	}
	for i := range sets {
		sets[i].Permitted &= keep[i]
		sets[i].Effective = sets[i].Permitted
		sets[i].Inheritable = 0 // so that none is ambient either
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}
