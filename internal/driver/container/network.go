package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container/link"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// policyFile holds the policy of a box, in the directory of its network.
const policyFile = "policy"

// nothingAfter is above every connection number, so it requests no connection
// records.
const nothingAfter = int64(1) << 62

// A boxNetwork is the network of one box. Each process that has the box has one;
// the process that holds the lock in the network's directory carries its packets.
type boxNetwork struct {
	state   *StateDir
	program string // the program of the network process
	spec    *driver.Spec
	linked  bool // the box was made with a network
	// explain wraps an error in [driver.ErrGone] if the box is gone.
	explain func(context.Context, error) error

	mu     sync.Mutex
	closed bool
	// link is nil without a network, or if another process has the link; guarded by mu.
	link *link.Link
	// The connections of a network that was taken over are numbered from base on.
	takenOver, based bool  // guarded by mu
	base             int64 // guarded by mu

	changing sync.Mutex // held while the policy changes
}

func (n *boxNetwork) dir() (string, error) { return n.state.NetworkDir(n.spec.ID) }

// policy returns the policy that the box must have now.
func (n *boxNetwork) policy() sandbox.Network {
	if n.linked {
		if dir, err := n.dir(); err == nil {
			if text, err := os.ReadFile(filepath.Join(dir, policyFile)); err == nil {
				return sandbox.Network(text)
			}
		}
	}
	return n.spec.Network
}

// keepPolicy stores the box's policy for a later process, by an atomic rename.
func keepPolicy(dir string, n sandbox.Network) error {
	return atomicfile.Replace(filepath.Join(dir, policyFile), []byte(n), 0o600)
}

// start gives the box its network, before the box runs any program.
func (n *boxNetwork) start(ctx context.Context, tunnel Tunnel) error {
	dir, err := n.dir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := keepPolicy(dir, n.spec.Network); err != nil {
		return err
	}
	lock, err := link.Lock(dir)
	if err != nil {
		return err
	}
	if lock == nil {
		return sandbox.Errorf(sandbox.Conflict, "the network of %s is carried already", n.spec.ID)
	}
	err = n.open(ctx, tunnel, lock, network.Options{Network: n.spec.Network, Terms: n.spec.NetworkTerms, Secrets: n.spec.Secrets})
	if err != nil {
		lock.Close()
	}
	return err
}

// takeOver carries the network of a box after its server has ended. The secrets of
// the box are lost, because only that server had them: [network.Start] refuses the
// hosts of header rules. It does nothing if another
// process carries the network.
func (n *boxNetwork) takeOver(ctx context.Context, tunnel Tunnel) (err error) {
	if !n.linked || !CanNetwork(n.program) {
		return nil
	}
	dir, err := n.dir()
	if err != nil {
		return err
	}
	lock, err := link.Lock(dir)
	if err != nil || lock == nil {
		return err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := tunnel.Remove(ctx); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, policyFile))
	if err != nil {
		return err
	}
	// Remove the socket of the previous process, or the next cannot listen.
	if err := network.RemoveSocket(dir); err != nil {
		return err
	}
	n.mu.Lock()
	n.takenOver = true
	n.mu.Unlock()
	return n.open(ctx, tunnel, lock, network.Options{Network: sandbox.Network(text).InForce(), Terms: n.spec.NetworkTerms})
}

// open starts both ends of the box's link and the copying between them. If it
// succeeds, the link owns the lock.
func (n *boxNetwork) open(ctx context.Context, tunnel Tunnel, lock *os.File, opts network.Options) error {
	dir, err := n.dir()
	if err != nil {
		return err
	}
	streams, err := startTunnel(ctx, tunnel)
	if err != nil {
		return err
	}
	l, err := link.Start(n.program, n.spec.ID, dir, opts, streams, lock)
	if err != nil {
		return errors.Join(err, streams.Close())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		l.Close()
		return sandbox.Errorf(sandbox.Conflict, "the box was destroyed meanwhile")
	}
	n.link = l
	return nil
}

// close ends the link, if this process has it.
func (n *boxNetwork) close() {
	n.mu.Lock()
	l := n.link
	n.link, n.closed = nil, true
	n.mu.Unlock()
	l.Close()
}

// inForce returns the policy that the box's network enforces. It is "" if the
// network does not answer.
func (n *boxNetwork) inForce(ctx context.Context) sandbox.Network {
	if !n.linked {
		return ""
	}
	dir, err := n.dir()
	if err != nil {
		return ""
	}
	_, policy, err := network.Ask(ctx, dir, nothingAfter)
	if err != nil {
		return ""
	}
	return policy
}

// traffic returns the traffic of the box. A network that was taken over numbers its
// connections from the last number that the caller knows.
func (n *boxNetwork) traffic(ctx context.Context, after int64) (sandbox.Traffic, error) {
	const op = "read traffic of box"
	if !n.linked {
		return sandbox.Traffic{}, sandbox.Wrap(driver.NoNetwork(), op, n.spec.ID)
	}
	dir, err := n.dir()
	if err != nil {
		return sandbox.Traffic{}, err
	}
	base := n.numberBase(after)
	t, _, err := network.Ask(ctx, dir, after-base)
	if err != nil {
		return t, sandbox.Wrap(n.explain(ctx, err), op, n.spec.ID)
	}
	for i := range t.Connections {
		t.Connections[i].Number += base
	}
	return t, nil
}

// numberBase returns the offset of the connection numbers of a network that was
// taken over. It is the value of after in the first call.
func (n *boxNetwork) numberBase(after int64) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.takenOver && !n.based {
		n.base, n.based = after, true
	}
	return n.base
}

// set puts another policy in force, and header rules unless they are nil.
func (n *boxNetwork) set(ctx context.Context, policy sandbox.Network, rules []sandbox.Secret) error {
	const op = "change network of box"
	if err := policy.CheckCanonical(); err != nil {
		return err
	}
	if !n.linked {
		return sandbox.Wrap(driver.NoNetwork(), op, n.spec.ID)
	}
	dir, err := n.dir()
	if err != nil {
		return err
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	// The file is written first, so that a process that takes the box over never
	// allows more.
	before := n.policy()
	if err := keepPolicy(dir, policy); err != nil {
		return sandbox.Wrap(err, op, n.spec.ID)
	}
	if err := network.Change(ctx, dir, policy, rules); err != nil {
		return sandbox.Wrap(errors.Join(n.explain(ctx, err), keepPolicy(dir, before)), op, n.spec.ID)
	}
	return nil
}

// authority returns the certificate of the authority that the box trusts.
func (n *boxNetwork) authority(ctx context.Context) ([]byte, error) {
	if !n.linked {
		return nil, nil
	}
	dir, err := n.dir()
	if err != nil {
		return nil, err
	}
	pem, err := network.Authority(ctx, dir)
	return pem, sandbox.Wrap(err, "read authority of box", n.spec.ID)
}

// CanNetwork reports whether boxes can have a network, with the program of its
// process; "" is no program.
func CanNetwork(program string) bool { return link.Available && program != "" }
