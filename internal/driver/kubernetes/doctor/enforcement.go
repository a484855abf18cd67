package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/probe"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// LabelProbe is on the Pods of a doctor. Their other labels are those of a box, so the
// NetworkPolicies of boxes hold for them, and the sweep removes what a doctor leaves.
const LabelProbe = "glovebox.probe"

const (
	// maxAge is how long a Pod of a doctor lives at most.
	maxAge = 10 * time.Minute
	// MaxStart bounds the start of a Pod of a doctor. Two start after each other.
	MaxStart = 3 * time.Minute
)

// IsProbe reports whether a Pod is that of a doctor which may still need it.
func IsProbe(pod *corev1.Pod, now time.Time) bool {
	return pod.Labels[LabelProbe] != "" && now.Sub(pod.CreationTimestamp.Time) < maxAge
}

// A Prober runs Pods that the doctor makes.
type Prober interface {
	// Start makes a Pod and waits until ready is satisfied with it, within [MaxStart].
	// If it fails, the Pod may exist.
	Start(ctx context.Context, pod *corev1.Pod, ready func(*corev1.Pod) bool) error
	// Remove deletes a Pod, if there is one, also when ctx has ended.
	Remove(ctx context.Context, name string) error
}

// enforcement reports whether the cluster's network denies the traffic of boxes. One
// Pod listens, and another dials it and the API server. With the transport "direct", this
// process dials the first one, and the check of the transport says the result.
func (on *Cluster) enforcement(ctx context.Context, transport *Check) (c Check) {
	c.Name = "policy enforcement"
	var names []string
	defer func() {
		for _, name := range names {
			if err := on.Prober.Remove(ctx, name); err != nil {
				c.OK = false
				c.Detail += fmt.Sprintf("; Pod %s remains until the server's next sweep: %v", name, err)
			}
		}
	}()
	start := func(args []string, port int, ready func(*corev1.Pod) bool) error {
		pod, err := on.probePod(args, port)
		if err != nil {
			return err
		}
		names = append(names, pod.Name)
		return on.Prober.Start(ctx, pod, ready)
	}

	var ip string
	err := start(probe.ListenArgs(), probe.Port, func(pod *corev1.Pod) bool {
		ip = pod.Status.PodIP
		return ip != "" && isReady(pod)
	})
	if on.Direct {
		on.tryTransport(ctx, transport, ip, err)
	}
	var result probe.Result
	if err == nil {
		err = start(probe.DialArgs(ip), 0, func(pod *corev1.Pod) bool {
			status, ended := statusOf(pod)
			result = probe.Result(status)
			return ended
		})
	}
	if err == nil && !result.Valid() {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the probe ended with status %d", result), "see that kubernetes.guest_image is the image of this version")
	}
	if err != nil {
		c.Detail = "not known whether policies hold: " + err.Error()
		if c.Fix = sandbox.HintOf(err); c.Fix == "" && errors.Is(err, context.Canceled) {
			c.Fix = "try again"
		}
		return c
	}
	var reached []string
	if result&probe.ReachedPod != 0 {
		reached = append(reached, "another one")
	}
	if result&probe.ReachedAPIServer != 0 {
		reached = append(reached, "the API server")
	}
	if len(reached) > 0 {
		c.Detail = "a Pod with the labels of sandboxes reached " + strings.Join(reached, " and ")
		c.Fix = "make the NetworkPolicy of docs/guides/kubernetes.md, and install a network plug-in that enforces it, such as Calico or Cilium"
		return c
	}
	c.OK, c.Detail = true, "a Pod with the labels of sandboxes reached neither another one nor the API server"
	if result&probe.NoAPIServer != 0 {
		c.Detail = "a Pod with the labels of sandboxes did not reach another one; it has no address of the API server"
	}
	if result&probe.Late != 0 {
		c.Detail += ", but did at its start: the network plug-in denies the traffic of a Pod some time after that"
	}
	return c
}

// tryTransport dials the port of guests in a Pod, unless the Pod did not start.
func (on *Cluster) tryTransport(ctx context.Context, c *Check, ip string, err error) {
	if err != nil {
		c.OK, c.Detail = false, c.Detail+"; not known whether this machine reaches it, because the Pod that listens did not start"
		return
	}
	if err := on.Dial(ctx, net.JoinHostPort(ip, strconv.Itoa(probe.Port))); err != nil {
		c.OK, c.Fatal, c.Detail = false, true, fmt.Sprintf("%s, which this machine does not reach: %v", c.Detail, err)
		c.Fix = "run the server in the cluster, and make the policy of docs/guides/kubernetes.md#transport; or set kubernetes.transport: exec"
		return
	}
	c.Detail += ", which this machine reached"
}

// probePod returns the Pod of a sandbox, with the program of package probe in place of
// the guest. Its port, unless it is 0, makes it ready: the kubelet dials it from the
// Pod's own node, which no policy prevents.
func (on *Cluster) probePod(args []string, port int) (*corev1.Pod, error) {
	pod, err := on.Pod()
	if err != nil {
		return nil, err
	}
	pod.Labels[LabelProbe] = "network"
	limit := int64(maxAge / time.Second)
	pod.Spec.ActiveDeadlineSeconds = &limit
	pod.Spec.InitContainers, pod.Spec.Volumes = nil, nil
	box := &pod.Spec.Containers[0]
	box.Command, box.Args = nil, args // of the image's own program
	box.Stdin, box.StdinOnce = false, false
	box.VolumeMounts, box.TerminationMessagePath = nil, ""
	if port != 0 {
		box.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}},
			PeriodSeconds: 1,
		}
	}
	return pod, nil
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// statusOf returns the exit status of the program of a Pod, if it has ended.
func statusOf(pod *corev1.Pod) (status int32, ended bool) {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return t.ExitCode, true
		}
	}
	return 0, false
}
