package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/podstate"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// explain returns an error of the API server with its kind and a hint.
func explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	text := err.Error()
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(text, "exceeded quota"):
		return sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Exhausted, "the namespace's quota is used up: %w", err), podstate.RetryTime),
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
		return sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the cluster's API server does not answer: %w", detached(err)), podstate.RetryTime),
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

// explainBox is explain for a call about the Pod of a box.
func explainBox(ctx context.Context, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", driver.ErrGone, err)
	}
	return explainIn(ctx, err)
}
