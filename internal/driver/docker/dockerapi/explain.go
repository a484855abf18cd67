package dockerapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Explain gives an error of the container engine its kind.
func (e *Engine) Explain(err error) error {
	if err == nil {
		return nil
	}
	var lost *url.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case refused(err), errors.As(err, &lost), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s does not answer at %s: %w", e.Name, e.At.Host, err),
			"check that it runs; the sandboxes that it kept continue when it runs again")
	case strings.Contains(err.Error(), "unable to upgrade to tcp"):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s at %s: %w", e.Name, e.At.Host, err),
			"a proxy before the engine does not forward streams; HAProxy 2.4 to 3.0 does not if a request has a body: use another proxy, or the engine's own socket")
	case errdefs.IsPermissionDenied(err):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s at %s does not allow it: %w", e.Name, e.At.Host, err),
			"a proxy or a plugin of the engine forbids the request: allow the requests that deploy/compose.yaml allows")
	case errdefs.IsNotFound(err):
		return sandbox.Errorf(sandbox.NotFound, "%s: %w", e.Name, err)
	case errdefs.IsConflict(err):
		return sandbox.Errorf(sandbox.Conflict, "%s: %w", e.Name, err)
	case strings.Contains(err.Error(), "no space left on device"):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the disk of %s is full: %w", e.Name, err),
			"make room: %s system df, %s image prune", e.Name, e.Name)
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s: %w", e.Name, err)
}

// ExplainBox is Explain for a call about a box. If the box does not run, the error
// wraps [driver.ErrGone].
func (e *Engine) ExplainBox(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) && strings.Contains(text, "not running") ||
		strings.Contains(text, "is not running") || strings.Contains(text, "container state improper") {
		return fmt.Errorf("%w: %w", driver.ErrGone, err)
	}
	return e.Explain(err)
}
