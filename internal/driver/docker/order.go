package docker

import (
	"os"
	"strconv"

	api "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
)

// materials are the container engine's names of the things that a plan leaves open.
type materials struct {
	image    string // ID
	guest    string // the volume with the guest's program
	settings string // the container engine's directory with the settings; empty for a tunnel
	runtime  string // the OCI runtime for code of users; empty is the container engine's default
}

// orderOf translates a plan into an order for the container engine e.
func orderOf(e *dockerapi.Engine, p *container.Plan, m materials) client.ContainerCreateOptions {
	host := &api.HostConfig{
		AutoRemove:     p.Temporary,
		LogConfig:      api.LogConfig{Type: "none"},
		NetworkMode:    "none",
		RestartPolicy:  api.RestartPolicy{Name: "no"},
		CapDrop:        []string{"ALL"},
		CapAdd:         p.Capabilities,
		IpcMode:        api.IPCModePrivate,
		ReadonlyRootfs: p.ReadOnlyRoot,
		SecurityOpt:    []string{"no-new-privileges"},
		ShmSize:        p.ShmBytes,
		Init:           new(bool),
		Resources: api.Resources{
			Memory:     p.MemoryBytes,
			MemorySwap: p.MemoryBytes, // the sum of memory and swap, so there is no swap
			NanoCPUs:   p.NanoCPUs,
		},
		Mounts: []mount.Mount{{
			Type: mount.TypeVolume, Source: m.guest, Target: container.GuestDir, ReadOnly: true,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true},
		}},
	}
	if p.Network != "" {
		host.NetworkMode = api.NetworkMode("container:" + p.Network)
	}
	if p.UserCode {
		host.Runtime = m.runtime
	}
	if p.Processes > 0 {
		host.PidsLimit = &p.Processes
	}
	if p.LayerBytes > 0 {
		host.StorageOpt = map[string]string{"size": strconv.FormatInt(p.LayerBytes, 10)}
	}
	if p.IPv6 {
		host.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.default.disable_ipv6": "0"}
	}
	for _, path := range p.Devices {
		host.Devices = append(host.Devices, api.DeviceMapping{PathOnHost: path, PathInContainer: path, CgroupPermissions: "rw"})
	}
	host.Tmpfs = map[string]string{}
	for _, s := range p.Scratch {
		host.Tmpfs[s.Path] = e.Tmpfs(s)
	}
	for _, s := range p.ImageVolumes {
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeTmpfs, Target: s.Path, TmpfsOptions: &mount.TmpfsOptions{SizeBytes: s.Bytes, Mode: os.FileMode(s.Mode)},
		})
	}
	for target, file := range p.Settings {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: m.settings + "/" + file, Target: target, ReadOnly: true})
	}
	for _, d := range p.Mounts {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: d.Dir, Target: d.Path, ReadOnly: d.ReadOnly})
	}
	for target, volume := range p.Volumes {
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeVolume, Source: volume, Target: target, VolumeOptions: &mount.VolumeOptions{NoCopy: true},
		})
	}
	return client.ContainerCreateOptions{
		Name: p.Name,
		Config: &api.Config{
			Image:        m.image,
			Hostname:     p.Hostname,
			User:         "0:0",
			WorkingDir:   "/",
			Entrypoint:   []string{container.GuestPath},
			Cmd:          p.Args,
			AttachStdin:  true,
			AttachStdout: true,
			AttachStderr: true,
			OpenStdin:    true,
			StdinOnce:    true, // so that the guest gets end of file when its creator ends
			Healthcheck:  &api.HealthConfig{Test: []string{"NONE"}},
			Labels:       p.Labels,
		},
		HostConfig: host,
	}
}
