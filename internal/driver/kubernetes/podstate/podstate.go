// Package podstate reads the state of a sandbox's Pod: whether it runs or is over, and
// why it does not start.
//
// Only package kubernetes imports it. It has no state.
package podstate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The containers of a Pod.
const (
	GuestContainer = "guest" // installs the guest's program
	BoxContainer   = "box"
)

// RetryTime is the time after which to try again when the cluster is overloaded or
// its API server does not answer.
const RetryTime = 5 * time.Second

// imageReasons are the reasons for which a container waits because of its image.
// With ErrImagePull, the kubelet tries once more before it says ImagePullBackOff.
var imageReasons = map[string]bool{"ImagePullBackOff": true, "ErrImageNeverPull": true, "InvalidImageName": true, "ImageInspectError": true}

// startFailures are other reasons for which a container does not start.
var startFailures = map[string]bool{"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true, "PreCreateHookError": true, "PreStartHookError": true}

// Started reports whether the box of a Pod runs. The error says why it never will.
func Started(pod *corev1.Pod) (bool, error) {
	if pod == nil {
		return false, sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the Pod was deleted while it started"), RetryTime),
			"try again; the cluster may have evicted it, or another client deletes Pods in this namespace")
	}
	if pod.DeletionTimestamp != nil {
		return false, sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the Pod is being deleted, %s", cause(pod)), RetryTime),
			"try again; the cluster evicts Pods from nodes that are lost or full")
	}
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if w := status.State.Waiting; w != nil {
			if err := waitingFor(&status, w); err != nil {
				return false, err
			}
		}
		if t := status.State.Terminated; t != nil && (status.Name == BoxContainer || t.ExitCode != 0) {
			return false, ended(&status, t)
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return false, sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the Pod failed, %s", cause(pod)), RetryTime),
			"try again; see the nodes' memory and disk: kubectl describe nodes")
	}
	status := boxStatus(pod)
	return status != nil && status.State.Running != nil, nil
}

// cause returns why a Pod failed, as the cluster says it.
func cause(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("because of %s: %s", c.Reason, c.Message)
		}
	}
	if pod.Status.Reason == "" {
		return "and the cluster does not say why"
	}
	return fmt.Sprintf("because of %s: %s", pod.Status.Reason, pod.Status.Message)
}

func waitingFor(status *corev1.ContainerStatus, w *corev1.ContainerStateWaiting) error {
	switch {
	case imageReasons[w.Reason] && status.Name == GuestContainer:
		return container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "the cluster cannot get the guest's image %s: %s: %s", status.Image, w.Reason, w.Message),
			"set kubernetes.guest_image to an image that the nodes can pull")
	case imageReasons[w.Reason]:
		return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "the cluster cannot get the image: %s: %s", w.Reason, w.Message),
			"see that the name is right and the nodes may pull it; kubernetes.pull_secrets names credentials")
	case startFailures[w.Reason]:
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the node cannot start the container: %s: %s", w.Reason, w.Message),
			"see that a plain Pod of that image and runtime class starts: kubectl describe pod")
	}
	return nil
}

// ended returns the error of a container that has ended and should run.
func ended(status *corev1.ContainerStatus, t *corev1.ContainerStateTerminated) error {
	if t.Reason == "OOMKilled" {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the container's memory was full before it ran"), "ask for more memory: the kernel of the runtime class needs some of it")
	}
	return sandbox.WithHint(fmt.Errorf("%w: %s ended with status %d, %s: %q", container.ErrStartFailed, status.Name, t.ExitCode, t.Reason, t.Message),
		"see that kubernetes.guest_image is the image of this version, and for the nodes' architecture")
}

// PendingError is the error of a Pod that did not start in time.
func PendingError(pod *corev1.Pod, warning string, waited time.Duration) error {
	why := "the cluster does not say why"
	if pod != nil {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				why = c.Reason + ": " + c.Message
			}
		}
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if w := status.State.Waiting; w != nil && w.Message != "" {
				why = w.Reason + ": " + w.Message
			}
		}
	}
	if warning != "" {
		why = warning
	}
	return sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the Pod did not start within %v: %s", waited, why), RetryTime),
		"give the cluster room for it, or raise kubernetes.start_timeout")
}

// boxStatus returns the status of the box's container, or nil if there is none yet.
func boxStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == BoxContainer {
			return c
		}
	}
	return nil
}

// Of returns the state of the box of a Pod.
func Of(pod *corev1.Pod, now time.Time) container.State {
	status := boxStatus(pod)
	if status == nil {
		return container.State{}
	}
	s := container.State{Running: status.State.Running != nil && !IsOver(pod, now)}
	if t := status.State.Terminated; t != nil {
		s.OOMKilled = t.Reason == "OOMKilled"
	}
	// The kubelet reports what it has put into force, since Kubernetes 1.33.
	if r := status.Resources; r != nil {
		s.CPUs = r.Limits.Cpu().AsApproximateFloat64()
		s.MemoryBytes = r.Limits.Memory().Value()
		s.Source = "the node's control group, as the Pod's status reports it; the kernel inside shows none"
	}
	return s
}

// LostTime is how long the deletion of a Pod may be overdue before its node counts
// as lost.
const LostTime = 30 * time.Second

// IsOver reports whether a Pod runs no longer, whatever its containers' last report.
// A node that is lost reports nothing.
func IsOver(pod *corev1.Pod, now time.Time) bool {
	switch pod.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded:
		return true
	}
	return pod.DeletionTimestamp != nil && now.After(pod.DeletionTimestamp.Add(LostTime))
}
