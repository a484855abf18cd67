package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// retryTime is the time after which to try again when the cluster is overloaded or
// its API server does not answer.
const retryTime = 5 * time.Second

// explain returns an error of the API server with its kind and a hint.
func explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	text := err.Error()
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(text, "exceeded quota"):
		return sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Exhausted, "the namespace's quota is used up: %w", err), retryTime),
			"stop other sandboxes, or have the cluster's operator raise the ResourceQuota")
	case apierrors.IsForbidden(err) && strings.Contains(text, "violates PodSecurity"):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the namespace does not admit the sandbox's Pod: %w", err),
			"sandboxes meet the level restricted: see which rule is added to it")
	case apierrors.IsForbidden(err) && strings.Contains(text, "RuntimeClass"):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the cluster does not have the runtime class: %w", err),
			"name another in kubernetes.runtime_class, or make it: kubectl get runtimeclass")
	case apierrors.IsForbidden(err) && strings.Contains(text, "limits.") || apierrors.IsForbidden(err) && strings.Contains(text, "maximum"):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the namespace limits its Pods: %w", err), "ask for less, or ask the operator to raise the maximum")
	case apierrors.IsUnauthorized(err):
		return container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "the cluster does not accept the server's credentials: %w", err),
			"renew those of kubernetes.kubeconfig: kubectl auth whoami shows whether they are accepted")
	case apierrors.IsForbidden(err):
		return container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "the cluster does not let the server do that: %w", err),
			"give the server's account the Role of docs/guides/kubernetes.md; glovebox doctor lists what is missing, and --fix prints it")
	case apierrors.IsAlreadyExists(err):
		return sandbox.Errorf(sandbox.Conflict, "there is such a Pod: %w", err)
	case apierrors.IsNotFound(err) && strings.Contains(text, "namespaces"):
		return container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "the namespace is not there: %w", err), "make it, or name another in kubernetes.namespace; glovebox doctor --fix prints it")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the cluster refuses the Pod: %w", err), "see that the image's name is complete, such as registry.example.com/name:tag")
	case isTransient(err):
		return sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the cluster's API server does not answer: %w", detached(err)), retryTime),
			"try again; if it persists, see whether the API server runs and is reachable: kubectl version")
	}
	return err
}

// detached returns err without a context's error in it: the time that ran out was
// that of one call, not of the caller.
func detached(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New(err.Error()) //nolint:err113 // the text is all that is kept
	}
	return err
}

// isTransient reports whether the API server was not reached, or was overloaded.
func isTransient(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || noAnswer(err)
}

// noAnswer reports whether an error comes from this side of the API server.
func noAnswer(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || apierrors.ReasonForError(err) == "" && isEOF(err)
}

func isEOF(err error) bool {
	return strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "connection re")
}

// explainIn is explain for a call whose caller's context is ctx.
func explainIn(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return explain(err)
}

// imageReasons are the reasons for which a container waits because of its image.
// With ErrImagePull, the kubelet tries once more before it says ImagePullBackOff.
var imageReasons = map[string]bool{"ImagePullBackOff": true, "ErrImageNeverPull": true, "InvalidImageName": true, "ImageInspectError": true}

// startFailures are other reasons for which a container does not start.
var startFailures = map[string]bool{"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true, "PreCreateHookError": true, "PreStartHookError": true}

// started reports whether the box of a Pod runs. The error says why it never will.
func started(pod *corev1.Pod) (bool, error) {
	if pod == nil {
		return false, sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the Pod was deleted while it started"), retryTime),
			"try again; the cluster may have evicted it, or somebody deletes Pods in this namespace")
	}
	if pod.DeletionTimestamp != nil {
		return false, sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the Pod is being deleted, %s", cause(pod)), retryTime),
			"try again; the cluster evicts Pods from nodes that are lost or full")
	}
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if w := status.State.Waiting; w != nil {
			if err := waitingFor(&status, w); err != nil {
				return false, err
			}
		}
		if t := status.State.Terminated; t != nil && (status.Name == boxContainer || t.ExitCode != 0) {
			return false, ended(&status, t)
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return false, sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the Pod failed, %s", cause(pod)), retryTime),
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
	case imageReasons[w.Reason] && status.Name == guestContainer:
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

// pendingError is the error of a Pod that did not start in time.
func pendingError(pod *corev1.Pod, warning string, waited time.Duration) error {
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
	return sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the Pod did not start within %v: %s", waited, why), retryTime),
		"give the cluster room for it, or raise kubernetes.start_timeout")
}

// explainBox is explain for a call about the Pod of a box.
func explainBox(ctx context.Context, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", driver.ErrGone, err)
	}
	return explainIn(ctx, err)
}
