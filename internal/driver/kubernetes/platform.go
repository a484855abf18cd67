package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/direct"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/podstate"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// reportTime bounds how long a node may take to report that a container ended.
	reportTime = 10 * time.Second
	// refusedTime is the same for a container whose guest seems to refuse an order.
	refusedTime = 5 * time.Second
	// removeTime bounds the wait for a Pod that was deleted, until its node counts as
	// lost.
	removeTime = 45 * time.Second
)

// A platform is a cluster, as the boxes of one state directory use it.
type platform struct {
	api   *api
	conn  *connection
	state *container.StateDir
	links *direct.Links // nil if all traffic goes through the API server
}

var (
	_ container.Platform = (*platform)(nil)
	_ container.Ender    = (*platform)(nil)
	_ direct.Cluster     = (*platform)(nil)
)

// Usable implements [container.Platform].
func (p *platform) Usable(context.Context) error {
	_, err := p.conn.open()
	return err
}

// State implements [container.Platform].
func (p *platform) State(ctx context.Context, ref string) (container.State, error) {
	pod, err := p.inspect(ctx, ref)
	if err != nil {
		return container.State{}, err
	}
	return podstate.Of(pod, time.Now()), nil
}

// inspect returns the Pod of a box of this state directory. The error wraps
// [driver.ErrGone] if there is none.
func (p *platform) inspect(ctx context.Context, ref string) (*corev1.Pod, error) {
	if !sandbox.ValidID(ref) {
		return nil, driver.ErrGone
	}
	pod, err := p.api.pod(ctx, podName(ref))
	if err != nil {
		return nil, explainBox(ctx, err)
	}
	ours, err := p.state.Owns(pod.Labels, ref)
	if err == nil && !ours {
		err = driver.ErrGone // it belongs to another state directory
	}
	return pod, err
}

// AwaitEnd implements [container.Ender].
func (p *platform) AwaitEnd(ctx context.Context, ref string) (container.State, error) {
	id, err := p.state.ID()
	if err != nil {
		return container.State{}, err
	}
	wait, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	last := container.State{Running: true} // until the cluster says that it does not
	err = p.api.watch.until(wait, id, podName(ref), func(pod *corev1.Pod) (bool, error) {
		if pod == nil {
			return true, driver.ErrGone
		}
		last = podstate.Of(pod, time.Now())
		return !last.Running, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return last, nil
	}
	return last, err
}

// Relay implements [container.Platform].
func (p *platform) Relay(ctx context.Context, ref string) (net.Conn, error) {
	return p.relay(ctx, ref, guestapi.DirectGuest)
}

// relay connects to the guest of a box, or to its packets. It tries again if the API
// server answers and the node does not, or if the address of the Pod does not.
func (p *platform) relay(ctx context.Context, ref string, purpose byte) (container.Streams, error) {
	return container.Reach(ctx, p, ref, func() (container.Streams, bool, error) {
		streams, err := p.connect(ctx, ref, purpose)
		switch {
		case err == nil:
			return streams, false, nil
		case ctx.Err() != nil:
			return nil, false, errors.Join(ctx.Err(), err)
		case errors.Is(err, direct.ErrRefused): // or the API server refused: the container has just ended
			wait, cancel := context.WithTimeout(ctx, refusedTime)
			defer cancel()
			if p.Ended(wait, ref) == nil {
				err = fmt.Errorf("%w: %w", driver.ErrGone, err)
			}
			return nil, false, err
		case errors.Is(err, direct.ErrNotReached):
			return nil, true, err
		}
		return nil, !noAnswer(err), sandbox.Errorf(sandbox.Unavailable, "reach the guest: %w", explainBox(ctx, err))
	})
}

func (p *platform) connect(ctx context.Context, ref string, purpose byte) (container.Streams, error) {
	switch {
	case p.links != nil:
		return p.links.Dial(ctx, p, ref, podName(ref), purpose)
	case purpose == guestapi.DirectPackets:
		return p.Exec(ctx, ref, container.PacketRelayArgs())
	}
	return p.Exec(ctx, ref, container.RelayArgs())
}

// Exec implements [direct.Cluster].
func (p *platform) Exec(ctx context.Context, ref string, args []string) (container.Streams, error) {
	s, err := p.api.exec(ctx, podName(ref), append([]string{container.GuestPath}, args...))
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Ended implements [direct.Cluster].
func (p *platform) Ended(ctx context.Context, ref string) error {
	id, err := p.state.ID()
	if err != nil {
		return err
	}
	return p.api.watch.follow(ctx, id, podName(ref), func(pod *corev1.Pod) (bool, error) {
		return pod == nil || !podstate.Of(pod, time.Now()).Running, nil
	})
}

// Address implements [direct.Cluster].
func (p *platform) Address(ctx context.Context, ref string) (string, error) {
	pod, err := p.api.pod(ctx, podName(ref))
	if err != nil {
		return "", err
	}
	if pod.Status.PodIP == "" {
		return "", sandbox.Errorf(sandbox.Unavailable, "%w: the cluster does not report it yet", direct.ErrNotReached)
	}
	return pod.Status.PodIP, nil
}

// Snapshot implements [container.Platform].
func (p *platform) Snapshot(context.Context, *container.Record, string, container.Packer) (driver.Snapshot, error) {
	return driver.Snapshot{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this driver takes no snapshots"), "use the driver gvisor or docker for snapshots")
}

// Remove implements [container.Platform]. It does as much as it can when ctx ends.
func (p *platform) Remove(ctx context.Context, ref string) error {
	p.links.Forget(ref)
	dir, err := p.state.NetworkDir(ref)
	if err != nil {
		return err
	}
	if err := p.remove(context.WithoutCancel(ctx), ref); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// remove deletes the Pod of a box, and waits until its node has ended it.
func (p *platform) remove(ctx context.Context, ref string) error {
	id, err := p.state.ID()
	if err != nil {
		return err
	}
	name := podName(ref)
	if err := p.api.remove(ctx, name, endTime); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return explain(err)
	}
	gone := func(pod *corev1.Pod) (bool, error) { return pod == nil || pod.Labels[container.LabelState] != id, nil }
	wait, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	err = p.api.watch.until(wait, id, name, gone)
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	// The node is lost. It ends the Pod when it comes back and finds it deleted.
	if err := p.api.remove(ctx, name, 0); err != nil && !apierrors.IsNotFound(err) {
		return explain(err)
	}
	return nil
}
