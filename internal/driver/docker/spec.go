package docker

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const homeDir = "/home/user"

// capabilities are the capabilities of the guest, and of sandbox-root. They allow
// access to other users' files and processes, and a change of user.
var capabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}

const (
	// maxOpenFiles bounds the file descriptors of each process.
	maxOpenFiles = 16384
	// guestThreads is the number of threads that the guest starts with. The limit
	// on processes counts them, so they are added to it.
	guestThreads = 24
	// shmSize bounds /dev/shm, whose content counts as memory.
	shmSize = 64 << 20
	// runSize bounds /run, which holds the guest's socket and belongs to root.
	runSize = 1 << 20
)

// A diskMode is a way to bound the data that a box writes.
type diskMode string

const (
	// The engine bounds the container's own layer.
	diskQuota diskMode = "quota"
	// The container's root is read-only; writable directories are in memory.
	diskMemory diskMode = "memory"
	// The container's own layer is not bounded, as the operator allowed.
	diskUnbounded diskMode = "unbounded"
)

// A kept is the stored description of a box, in a label of its container.
type kept struct {
	Spec driver.Spec `json:"spec"`
	Disk diskMode    `json:"disk"`
	// Keeper is the workspace volume of a keeper; empty for a box.
	Keeper string `json:"keeper,omitempty"`
}

func (k *kept) encode() (string, error) {
	text, err := json.Marshal(k)
	return string(text), err
}

func decodeSpec(text string) (*kept, error) {
	var k kept
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return nil, fmt.Errorf("%w: its label %s is not one of ours: %w", driver.ErrGone, labelSpec, err)
	}
	return &k, nil
}

// check refuses a spec that the driver cannot fulfil, before anything is started.
func (d *Driver) check(e *engine, spec *driver.Spec) error {
	if err := d.checkWorkspace(spec.Workspace); err != nil {
		return err
	}
	if spec.Network != sandbox.NetworkNone && !d.canNetwork() {
		return sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "network %q: this driver has no network but %q here", spec.Network, sandbox.NetworkNone),
			"leave the network out, or run the server on Linux")
	}
	for _, l := range []struct {
		name sandbox.ControlName
		can  bool
	}{
		{sandbox.ControlCPU, e.info.CPUCfsQuota},
		{sandbox.ControlMemory, e.info.MemoryLimit},
		{sandbox.ControlProcesses, e.info.PidsLimit},
	} {
		if !l.can && !allowed(spec, l.name) {
			return e.cannot(l.name, "it says so itself")
		}
	}
	return nil
}

// checkWorkspace returns an error if a workspace cannot be mounted, as far as this
// machine knows.
func (d *Driver) checkWorkspace(dir string) error {
	if dir == "" || isKept(dir) {
		return nil
	}
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || !filepath.IsAbs(dir) {
		return sandbox.Errorf(sandbox.Invalid, "workspace %q is not a directory (%v)", dir, err)
	}
	return nil
}

// hostPath returns the engine's path of the directory that this process has at
// path. It differs if this process is in a container itself.
func (d *Driver) hostPath(path string) string {
	if d.opts.Inside == "" || d.opts.Outside == "" {
		return path
	}
	rest, err := filepath.Rel(d.opts.Inside, path)
	if err != nil || !filepath.IsLocal(rest) {
		return path
	}
	return strings.TrimSuffix(d.opts.Outside, "/") + "/" + filepath.ToSlash(rest)
}

func allowed(spec *driver.Spec, name sandbox.ControlName) bool {
	for _, n := range spec.AllowUnenforced {
		if n == name {
			return true
		}
	}
	return false
}

// cannot returns the error for a limit that the engine cannot enforce.
func (e *engine) cannot(name sandbox.ControlName, why string) error {
	hint := "give the engine control groups it may write: version 2, with cpu, memory and pids delegated (systemd: Delegate=yes); or run it as root"
	if name == sandbox.ControlDisk {
		hint = "put the engine's storage on XFS mounted with pquota"
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "%s cannot enforce the limit of %s: %s", e.name, name, why),
		"%s; or allow it by name: --allow-unenforced %s", hint, name)
}

// config returns the order for the container of a box. volume is the volume with
// the guest. etc is the engine's directory with the box's settings. workspace is
// the engine's path of the workspace, empty for none.
func (d *Driver) config(e *engine, k *kept, image *runnerImage, volume, etc, workspace string) (client.ContainerCreateOptions, error) {
	spec := &k.Spec
	state, err := d.stateID()
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	label, err := k.encode()
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	// The guest sets the limits of processes itself: engines differ in the limits
	// that they allow, and add their own.
	args := []string{
		"serve", "--stdio", "--image-env", "--no-setid",
		"--threads", strconv.Itoa(guestThreads), "--nofile", strconv.Itoa(maxOpenFiles),
		"--cpus", strconv.FormatFloat(spec.Limits.CPUs, 'f', -1, 64),
	}
	if spec.Workspace == "" {
		args = append(args, "--own", sandbox.WorkDir+","+homeDir)
	} else {
		args = append(args, "--own", homeDir)
	}
	lease := "server"
	if !spec.Detached {
		args, lease = append(args, "--leased"), "owner"
	}
	l := spec.Limits
	limit := func(name sandbox.ControlName, can bool, n int64) int64 {
		if !can && allowed(spec, name) {
			return 0
		}
		return n
	}
	memory := limit(sandbox.ControlMemory, e.info.MemoryLimit, l.MemoryBytes)
	cpus := math.Min(l.CPUs, float64(max(e.info.NCPU, 1)))
	host := &container.HostConfig{
		LogConfig:      container.LogConfig{Type: "none"},
		NetworkMode:    "none",
		RestartPolicy:  container.RestartPolicy{Name: "no"},
		CapDrop:        []string{"ALL"},
		CapAdd:         capabilities,
		IpcMode:        container.IPCModePrivate,
		ReadonlyRootfs: k.Disk == diskMemory,
		SecurityOpt:    []string{"no-new-privileges"},
		ShmSize:        min(shmSize, max(l.MemoryBytes/4, 1<<20)),
		Runtime:        d.opts.Runtime,
		Tmpfs:          map[string]string{"/run": e.tmpfs(runSize, "755")},
		Init:           new(bool),
		Resources: container.Resources{
			Memory:     memory,
			MemorySwap: memory, // the sum of memory and swap, so there is no swap
			NanoCPUs:   limit(sandbox.ControlCPU, e.info.CPUCfsQuota, int64(math.Round(cpus*1e9))),
		},
		Mounts: []mount.Mount{{
			Type: mount.TypeVolume, Source: volume, Target: guestDir, ReadOnly: true,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true},
		}},
	}
	for file := range settings {
		source := etc + "/" + path.Base(file)
		switch {
		case file == linkedResolvers:
			continue
		case file == resolvConf && spec.Network != sandbox.NetworkNone:
			source = etc + "/" + path.Base(linkedResolvers)
		}
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: source, Target: file, ReadOnly: true})
	}
	if workspace != "" {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: workspace, Target: sandbox.WorkDir})
	}
	if spec.Network != sandbox.NetworkNone && d.hasIPv6(e) {
		// Engines disable IPv6 if their own networks have none.
		host.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.default.disable_ipv6": "0"}
	}
	if pids := limit(sandbox.ControlProcesses, e.info.PidsLimit, int64(l.Processes)+guestThreads); pids > 0 {
		host.PidsLimit = &pids
	}
	switch k.Disk {
	case diskQuota:
		host.StorageOpt = map[string]string{"size": strconv.FormatInt(l.DiskBytes, 10)}
	case diskMemory:
		for _, p := range places(l, spec.Writable) {
			if p.path == sandbox.WorkDir && spec.Workspace != "" {
				continue
			}
			host.Tmpfs[p.path] = e.tmpfs(p.bytes, p.mode)
		}
	}
	// An image's volumes would be on the engine's disk, unbounded.
	for path := range image.volumes {
		if host.Tmpfs[path] == "" {
			host.Mounts = append(host.Mounts, mount.Mount{
				Type: mount.TypeTmpfs, Target: path,
				TmpfsOptions: &mount.TmpfsOptions{SizeBytes: max(l.DiskBytes/50, 64<<10), Mode: 0o755},
			})
		}
	}
	hostname, _ := os.Hostname()
	order := client.ContainerCreateOptions{
		Name: spec.ID,
		Config: &container.Config{
			Image:        image.id,
			Hostname:     spec.Hostname,
			User:         "0:0",
			WorkingDir:   "/",
			Entrypoint:   []string{guestPath},
			Cmd:          args,
			AttachStdin:  true,
			AttachStdout: true,
			AttachStderr: true,
			OpenStdin:    true,
			StdinOnce:    true, // so that the guest gets end of file when its creator ends
			Healthcheck:  &container.HealthConfig{Test: []string{"NONE"}},
			Labels: map[string]string{
				labelState:   state,
				labelSandbox: spec.ID,
				labelSpec:    label,
				labelOwner:   fmt.Sprintf("%s:%d", hostname, os.Getpid()),
				labelLease:   lease,
			},
		},
		HostConfig: host,
	}
	if k.Keeper != "" {
		keep(&order, k.Keeper)
	}
	return order, nil
}

// A place is a writable directory in a box with a read-only root.
type place struct {
	path  string
	bytes int64
	mode  string
}

// places divides the disk limit among the directories that programs write. Their
// sum is within the limit. Each is at most half of the memory, so that a full
// directory does not cause an OOM kill. If a caller asks for directories of its
// own, it works there, perhaps as root, so the usual directory gets less.
func places(l sandbox.Limits, writable []string) []place {
	most := l.MemoryBytes / 2
	part := func(percent int64) int64 {
		n := min(l.DiskBytes*percent/100, most)
		return max(n/4096*4096, 4096)
	}
	if n := int64(len(writable)); n > 0 {
		all := []place{
			{sandbox.WorkDir, part(10), "755"},
			{homeDir, part(4), "755"},
			{"/tmp", part(8), "1777"},
			{"/var/tmp", part(1), "1777"},
			{"/root", part(35), "700"},
		}
		for _, dir := range writable {
			all = append(all, place{dir, part(40 / n), "755"})
		}
		return all
	}
	return []place{
		{sandbox.WorkDir, part(84), "755"},
		{homeDir, part(8), "755"},
		{"/tmp", part(4), "1777"},
		{"/var/tmp", part(1), "1777"},
		{"/root", part(1), "700"},
	}
}

// tmpfs returns the mount options of a file system in memory.
func (e *engine) tmpfs(size int64, mode string) string {
	opts := []string{
		"rw", "nosuid", "nodev", "exec",
		"size=" + strconv.FormatInt(size, 10),
		"mode=" + mode,
	}
	if e.name == Podman {
		// Without notmpcopyup, Podman copies the image's files there. Podman has no
		// option to bound the number of names; their memory counts as the box's.
		opts = append(opts, "notmpcopyup")
	} else {
		opts = append(opts, "nr_inodes="+strconv.FormatInt(max(size/4096, 256), 10))
	}
	return strings.Join(opts, ",")
}
