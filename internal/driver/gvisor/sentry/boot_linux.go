package sentry

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

// gVisor's kernel, the sentry, starts with all capabilities, because it makes the
// mounts of a small root of its own. In gVisor it then executes itself again with
// the few that it needs: capabilities belong to threads, and gVisor sets them for
// one thread only. The second start takes five to seven milliseconds of a
// processor.
//
// Here the same function of gVisor makes the root. Then the capabilities are
// reduced in all threads, and the process continues. It keeps the capabilities that
// gVisor leaves to a sentry. None of them is inheritable or ambient, because the
// process executes nothing more.

// kernelMain is gVisor's main function of the sentry of a box with this
// specification. It does not return.
func kernelMain(spec *specs.Spec) {
	cli.Run(map[subcommands.Command]string{&bootCommand{spec: spec}: ""}, nil)
}

//go:linkname setUpChroot gvisor.dev/gvisor/runsc/cmd.setUpChroot
func setUpChroot(*specs.Spec, *config.Config) error

//go:linkname directfsCaps gvisor.dev/gvisor/runsc/cmd.directfsSandboxLinuxCaps
var directfsCaps *specs.LinuxCapabilities

// errNotGVisors means that gVisor has renamed a variable that this package links
// to. The linker does not report this.
var errNotGVisors = errors.New("gVisor's list of capabilities is not where it was")

// bootCommand is gVisor's command for the sentry.
type bootCommand struct {
	cmd.Boot
	spec *specs.Spec
}

// Execute implements subcommands.Command.
func (b *bootCommand) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	if err := enterKernelRoot(b.spec, f, args[0].(*config.Config)); err != nil {
		util.Fatalf("enter root: %v", err)
	}
	// The threads start only now, because earlier threads would delay the change of
	// capabilities.
	if err := serveMounts(f); err != nil {
		util.Fatalf("serve mounts: %v", err)
	}
	observeStart(processLimitOf(b.spec))
	giveBackWhenAsked()
	pollLate()
	return b.Boot.Execute(ctx, f, args...)
}

// enterKernelRoot replaces the first of gVisor's two starts of the sentry.
func enterKernelRoot(spec *specs.Spec, f *flag.FlagSet, conf *config.Config) error {
	if spec == nil {
		return errors.New("no specification")
	}
	if flag.Get(f.Lookup("attached").Value) == true {
		// From now on the sentry dies with the supervisor; gVisor would set this later.
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
				continue // a host kernel without huge pages; gVisor continues, too
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
	// systrap, the platform, traces the processes of programs.
	return leaveProc(f, append(slices.Clone(directfsCaps.Bounding), "CAP_SYS_PTRACE"))
}

// leaveCgroup replaces the files of the process's control group that the Go runtime
// has opened. The runtime would follow the group's CPU limit through them for the
// life of the process. With /dev/null it finds no limit, as after gVisor's second
// start.
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

// leaveProc starts the process that unmounts /proc later, because this process will
// not have the right. Then it gives up all capabilities except keep, and sets the
// flags accordingly.
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

// keepCapabilities reduces the capabilities of all threads of the process to those
// in names. It requires an empty bounding set, so that an executed program of root
// gets none. The supervisor has set no_new_privs for the same reason.
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
