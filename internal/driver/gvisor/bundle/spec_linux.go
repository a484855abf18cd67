package bundle

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Settings returns gVisor's settings for a box whose directory is dir.
func Settings(rec *message.Record, dir string) (*config.Config, error) {
	flags := flag.NewFlagSet("glovebox", flag.ContinueOnError)
	config.RegisterFlags(flags)
	settings := map[string]string{
		"root": dir, // for the control socket
		// Never kvm by default: without nested virtualization it hangs.
		"platform": "systrap",
		"network":  "none",
		// The supervisor makes the groups; see package cgroup.
		"ignore-cgroups": "true",
		// The sentry opens the image's files itself, below directories that it
		// receives: see rootfs.Open. A request to another process for each file would
		// cost 40 ms at every start of Python.
		"directfs": "true",
		"rootless": strconv.FormatBool(!users.RootIsRoot()),
		// All written data is in one file of bounded size.
		"overlay2": fmt.Sprintf("root:dir=%s,size=%d", dir, rec.Spec.Limits.DiskBytes),
		// A saved box is restored only if its key fits: see package state.
		"restore-spec-validation": "ignore",
		// The doctor checks the host's settings, not every start.
		"host-settings": "ignore",
		"log":           filepath.Join(dir, "runsc.log"),
	}
	if rec.Spec.Containers {
		settings["net-raw"] = "true" // otherwise gVisor takes CAP_NET_RAW away
	}
	for name, value := range settings {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("set gVisor's %s to %q: %w", name, value, err)
		}
	}
	return config.NewFromFlags(flags)
}

// guestCapabilities are the capabilities of the guest, and of sandbox-root. They
// allow access to other users' files and processes, and a change of user. They
// apply inside the sentry and give no rights on the host.
var guestCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
	"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID",
	"CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
	// This exempts the guest's own threads from the process limit. The guest
	// removes it from the programs that it starts.
	"CAP_SYS_RESOURCE",
}

// containerCapabilities are added for a box whose programs run containers. The sentry
// implements what they allow, so they give no rights on the host either.
var containerCapabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_MKNOD", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN",
}

// maxOpenFiles bounds the file descriptors of each process in a box.
const maxOpenFiles = 16384

// GuestConnFD is the descriptor of the guest's first connection; the others follow
// it.
const GuestConnFD = 3

// New returns the OCI specification of a box whose guest starts with this number of
// streams.
func New(rec *message.Record, dir string, streams int) *specs.Spec {
	l := rec.Spec.Limits
	args := []string{
		rootfs.GuestPath, "serve", "--nproc", strconv.Itoa(l.Processes), "--cpus", strconv.FormatFloat(l.CPUs, 'f', -1, 64),
		// The guest often passes work from one thread to another. In the sentry,
		// waking a thread takes longer than that work.
		"--maxprocs", "1",
		"--interpreter", driver.InterpreterAddress, "--sudo", driver.SudoDir,
	}
	for i := range streams {
		args = append(args, "--conn-fd", strconv.Itoa(GuestConnFD+i))
	}
	if rec.Linked {
		args = append(args, "--resolver", resolvers())
	}
	capabilities := guestCapabilities
	if rec.Spec.Containers {
		args = append(args, "--containers")
		capabilities = slices.Concat(guestCapabilities, containerCapabilities)
	}
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=1777", "size=64m"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
		// The source is a name: see openMounts.
		{Destination: rootfs.GuestDir, Type: "bind", Source: rootfs.GuestDir, Options: []string{"bind", "ro", "nosuid", "nodev"}},
	}
	if rec.Spec.Containers {
		// Container engines need the controllers. Those of the sentry count, and the
		// groups on the host enforce the limits of the box.
		mounts = append(mounts, specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup"})
	}
	if workspace := rec.Spec.Workspace; workspace != "" {
		mounts = append(mounts, specs.Mount{
			Destination: sandbox.WorkDir, Type: "bind", Source: workspace, Options: []string{"rw", "nosuid", "nodev"},
		})
	}
	for _, m := range rec.Spec.Mounts {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		mounts = append(mounts, specs.Mount{Destination: m.Path, Type: "bind", Source: m.Dir, Options: []string{access, "nosuid", "nodev"}})
	}
	if rec.UserIsRoot {
		args = append(args, "--self", "--own", "/home/user")
	} else {
		args = append(args, "--own", sandbox.WorkDir+",/home/user")
	}
	quota, period := int64(math.Round(l.CPUs*cgroup.Period)), uint64(cgroup.Period)
	spec := &specs.Spec{
		Version:  "1.1.0",
		Hostname: rec.Spec.Hostname,
		Root:     &specs.Root{Path: dir}, // gVisor requires a path, and does not use it
		Process: &specs.Process{
			Args: args,
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding:  capabilities,
				Effective: capabilities,
				Permitted: capabilities,
			},
			NoNewPrivileges: true,
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: maxOpenFiles, Hard: maxOpenFiles},
				{Type: "RLIMIT_NPROC", Soft: uint64(l.Processes), Hard: uint64(l.Processes)},
				{Type: "RLIMIT_CORE", Soft: 0, Hard: 0},
			},
		},
		Mounts: mounts,
		Linux: &specs.Linux{
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: &l.MemoryBytes},
				CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
			},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
			},
		},
	}
	if first := rec.FirstUser; first != 0 {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		spec.Linux.UIDMappings, spec.Linux.GIDMappings = users.Map(first), users.Map(first)
	}
	return spec
}

// Write writes a specification to the file where gVisor's processes look for it.
func Write(dir string, spec *specs.Spec) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600)
}

// rootAnnotations returns annotations that make gVisor use a file as the root file
// system. A writable layer of bounded size, also in a file, lies above it. gVisor's
// overlay setting does not apply then.
func rootAnnotations(rec *message.Record, dir, file string) map[string]string {
	const prefix = "dev.gvisor.spec.rootfs."
	return map[string]string{
		prefix + "source":  file,
		prefix + "type":    "erofs",
		prefix + "overlay": "dir=" + dir,
		prefix + "options": "size=" + strconv.FormatInt(rec.Spec.Limits.DiskBytes, 10),
	}
}

// UseImage makes a specification one of a box of an OCI image.
func UseImage(rec *message.Record, dir string, spec *specs.Spec, root *message.ImageRoot) {
	spec.Annotations = rootAnnotations(rec, dir, root.File)
	c := root.Config
	spec.Process.Env = append(spec.Process.Env, c.Env...)
	spec.Process.Args = append(spec.Process.Args, "--image-env")
	if rec.Spec.Workspace == "" {
		// A workspace belongs to the user, and programs start in it.
		spec.Process.Args = append(spec.Process.Args, "--image-user", c.User, "--image-dir", c.WorkDir)
	}
}
