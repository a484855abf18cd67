package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A box with a network has a second container in the network namespace of its own
// container, which has only a loopback interface. The second container, the tunnel,
// makes an interface there. It carries packets between this interface and its
// standard input and output. The other end, on this machine, is the process of
// package network that enforces the policy.
//
// The link therefore needs none of the engine's networks, wherever the engine is.
// The box's programs have no more control over it than over any interface. If any
// part ends, the box reaches nothing.

const (
	// linkName is the name of the interface.
	linkName = "eth0"
	// tunnelMemory and tunnelProcesses bound the second container.
	tunnelMemory    = 64 << 20
	tunnelProcesses = 32
	// linkTime bounds how long the tunnel may take to become ready.
	linkTime = 20 * time.Second
)

// tunnelName returns the name of a box's second container.
func tunnelName(ref string) string { return ref + "-network" }

// remove removes all containers and files of a box. The second container goes
// first, because Podman does not remove the first before that.
func (d *Driver) remove(ctx context.Context, e *engine, ref string) error {
	dir, err := d.networkDir(ref)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return e.remove(ctx, ref) // it never had a network
	}
	err = e.remove(ctx, tunnelName(ref))
	if err = errors.Join(err, e.remove(ctx, ref)); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// networkDir returns the directory of a box's network. It contains the socket of
// its process and a file with its policy.
func (d *Driver) networkDir(ref string) (string, error) {
	if !sandbox.ValidID(ref) {
		return "", sandbox.Errorf(sandbox.Invalid, "%q is not a reference", ref)
	}
	return filepath.Join(d.opts.StateDir, d.opts.Engine, "networks", ref), nil
}

// hasIPv6 reports whether boxes can have IPv6, as far as is known.
func (d *Driver) hasIPv6(e *engine) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !e.noIPv6
}

const policyFile = "policy"

// linked reports whether the box was made with a network.
func (b *box) linked() bool { return b.kept.Spec.Network != sandbox.NetworkNone }

// policy returns the policy that the box must have now.
func (b *box) policy() sandbox.Network {
	if b.linked() {
		if dir, err := b.d.networkDir(b.Ref()); err == nil {
			if text, err := os.ReadFile(filepath.Join(dir, policyFile)); err == nil {
				return sandbox.Network(text)
			}
		}
	}
	return b.kept.Spec.Network
}

// keepPolicy stores the box's policy for a later process, by an atomic rename.
func keepPolicy(dir string, n sandbox.Network) error {
	return atomicfile.Replace(filepath.Join(dir, policyFile), []byte(n), 0o600)
}

// startNetwork gives the box its network, before the box runs any program.
func (b *box) startNetwork(ctx context.Context, image, volume string) error {
	dir, err := b.d.networkDir(b.Ref())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	s := &b.kept.Spec
	if err := keepPolicy(dir, s.Network); err != nil {
		return err
	}
	lock, err := lockNetwork(dir)
	if err != nil {
		return err
	}
	if lock == nil {
		return sandbox.Errorf(sandbox.Conflict, "the network of %s is carried already", b.Ref())
	}
	err = b.openLink(ctx, dir, image, volume, lock, network.Options{Network: s.Network, Terms: s.NetworkTerms, Secrets: s.Secrets})
	if err != nil {
		lock.Close()
	}
	return err
}

// takeOverNetwork carries the network of a box after its server has ended. The
// secrets of the box are lost, because only that server had them.
func (b *box) takeOverNetwork(ctx context.Context, image string) (err error) {
	if !b.linked() || !b.d.canNetwork() {
		return nil
	}
	dir, err := b.d.networkDir(b.Ref())
	if err != nil {
		return err
	}
	lock, err := lockNetwork(dir)
	if err != nil || lock == nil {
		return err // another process carries it
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := b.e.remove(ctx, tunnelName(b.Ref())); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, policyFile))
	if err != nil {
		return err
	}
	volume, err := b.d.guestVolume(ctx, b.e, image, false)
	if err != nil {
		return err
	}
	// Remove the socket of the previous process, or the next cannot listen.
	if err := network.RemoveSocket(dir); err != nil {
		return err
	}
	b.mu.Lock()
	b.takenOver = true
	b.mu.Unlock()
	return b.openLink(ctx, dir, image, volume, lock, network.Options{Network: sandbox.Network(text), Terms: b.kept.Spec.NetworkTerms})
}

// openLink starts both ends of the box's link and the copying between them. If it
// succeeds, the link owns the lock.
func (b *box) openLink(ctx context.Context, dir, image, volume string, lock *os.File, opts network.Options) (err error) {
	io, err := b.startTunnel(ctx, image, volume)
	if err != nil {
		return err
	}
	l, err := startLink(b.d.opts.Network, b.Ref(), dir, opts, io, lock)
	if err != nil {
		return errors.Join(err, io.Close())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.released {
		l.close()
		return sandbox.Errorf(sandbox.Conflict, "the box was destroyed meanwhile")
	}
	b.link = l
	return nil
}

// startTunnel starts the second container, and returns its standard input and
// output when it is ready. The caller closes them.
func (b *box) startTunnel(ctx context.Context, image, volume string) (_ *stdio, err error) {
	e, name := b.e, tunnelName(b.Ref())
	args := []string{"tunnel", "--mtu", strconv.Itoa(network.MTU)}
	for _, p := range []netip.Prefix{network.Guest4, network.Guest6} {
		args = append(args, "--address", p.String())
	}
	processes := int64(tunnelProcesses)
	order := client.ContainerCreateOptions{
		Name: name,
		Config: &container.Config{
			Image: image, User: "0:0", WorkingDir: "/",
			Entrypoint: []string{guestPath}, Cmd: args,
			AttachStdin: true, AttachStdout: true, AttachStderr: true, OpenStdin: true, StdinOnce: true,
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			Labels:      map[string]string{labelRole: roleNetwork},
		},
		HostConfig: &container.HostConfig{
			LogConfig:      container.LogConfig{Type: "none"},
			NetworkMode:    container.NetworkMode("container:" + b.Ref()),
			AutoRemove:     true, // the tunnel ends with its server
			RestartPolicy:  container.RestartPolicy{Name: "no"},
			CapDrop:        []string{"ALL"},
			CapAdd:         []string{"NET_ADMIN"},
			IpcMode:        container.IPCModePrivate,
			ReadonlyRootfs: true,
			SecurityOpt:    []string{"no-new-privileges"},
			Init:           new(bool),
			Resources: container.Resources{
				Devices: []container.DeviceMapping{{PathOnHost: "/dev/net/tun", PathInContainer: "/dev/net/tun", CgroupPermissions: "rw"}},
			},
			Mounts: []mount.Mount{{
				Type: mount.TypeVolume, Source: volume, Target: guestDir, ReadOnly: true,
				VolumeOptions: &mount.VolumeOptions{NoCopy: true},
			}},
		},
	}
	if e.info.MemoryLimit {
		order.HostConfig.Resources.Memory, order.HostConfig.Resources.MemorySwap = tunnelMemory, tunnelMemory
	}
	if e.info.PidsLimit {
		order.HostConfig.Resources.PidsLimit = &processes
	}
	call, cancel := steady(ctx)
	defer cancel()
	if _, err := e.ContainerCreate(call, order); err != nil {
		return nil, e.noNetwork(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.remove(ctx, name))
		}
	}()
	io, err := e.startAttached(call, name)
	if err != nil {
		return nil, e.noNetwork(err)
	}
	defer func() {
		if err != nil {
			io.Close()
		}
	}()
	// The tunnel writes nothing before it has received something.
	if _, err := io.Write([]byte{0, 0}); err != nil {
		return nil, e.noNetwork(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = io.SetReadDeadline(time.Unix(1, 0)) })
	_ = io.SetReadDeadline(time.Now().Add(linkTime))
	packet, err := readPacket(io, make([]byte, maxPacket))
	if err == nil && len(packet) > 0 {
		err = errors.New("it begins with a packet")
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, e.noNetwork(fmt.Errorf("%w: %q", err, io.stderr()))
	}
	return io, io.SetReadDeadline(time.Time{})
}

// noNetwork returns the error for a network that the engine cannot give a box.
func (e *engine) noNetwork(err error) error {
	if errdefs.IsConflict(err) {
		return e.explain(err)
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "%s cannot give a sandbox a network: %w", e.name, e.explain(err)),
		"the engine's machine needs /dev/net/tun (modprobe tun), and the engine must be allowed to hand it to a container; or leave the network out")
}

// networkInForce returns the policy that the box's network enforces. It is "" if
// the network does not answer.
func (b *box) networkInForce(ctx context.Context) sandbox.Network {
	if !b.linked() {
		return ""
	}
	dir, err := b.d.networkDir(b.Ref())
	if err != nil {
		return ""
	}
	_, n, err := network.Ask(ctx, dir, nothingAfter)
	if err != nil {
		return ""
	}
	return n
}

// nothingAfter is above every connection number, so it requests no connection
// records.
const nothingAfter = int64(1) << 62

// Traffic implements [driver.Networker]. A network that was taken over numbers its
// connections from the last number that the caller knows.
func (b *box) Traffic(ctx context.Context, after int64) (sandbox.Traffic, error) {
	const op = "read traffic of box"
	if !b.linked() {
		return sandbox.Traffic{}, sandbox.Wrap(driver.NoNetwork(), op, b.Ref())
	}
	dir, err := b.d.networkDir(b.Ref())
	if err != nil {
		return sandbox.Traffic{}, err
	}
	base := b.numberBase(after)
	t, _, err := network.Ask(ctx, dir, after-base)
	if err != nil {
		return t, sandbox.Wrap(b.orGone(ctx, err), op, b.Ref())
	}
	for i := range t.Connections {
		t.Connections[i].Number += base
	}
	return t, nil
}

// SetNetwork implements [driver.Networker].
func (b *box) SetNetwork(ctx context.Context, n sandbox.Network) error {
	const op = "change network of box"
	if err := n.CheckCanonical(); err != nil {
		return err
	}
	if !b.linked() {
		return sandbox.Wrap(driver.NoNetwork(), op, b.Ref())
	}
	dir, err := b.d.networkDir(b.Ref())
	if err != nil {
		return err
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	// The file is written first, so that a process that takes the box over never
	// allows more.
	before := b.policy()
	if err := keepPolicy(dir, n); err != nil {
		return sandbox.Wrap(err, op, b.Ref())
	}
	if err := network.Change(ctx, dir, n); err != nil {
		return sandbox.Wrap(errors.Join(b.orGone(ctx, err), keepPolicy(dir, before)), op, b.Ref())
	}
	return nil
}

// Authority implements [driver.Networker].
func (b *box) Authority(ctx context.Context) ([]byte, error) {
	if !b.linked() {
		return nil, nil
	}
	dir, err := b.d.networkDir(b.Ref())
	if err != nil {
		return nil, err
	}
	pem, err := network.Authority(ctx, dir)
	return pem, sandbox.Wrap(err, "read authority of box", b.Ref())
}

// numberBase returns the offset of the connection numbers of a network that was
// taken over. It is the value of after in the first call.
func (b *box) numberBase(after int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.takenOver && !b.based {
		b.base, b.based = after, true
	}
	return b.base
}
