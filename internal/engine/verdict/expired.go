package verdict

import (
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Expired reports whether a sandbox has expired, and why.
func Expired(s sandbox.Sandbox, busy bool, now time.Time) (Reason, bool) {
	if !now.Before(s.Created.Add(s.Limits.Lifetime)) {
		return Reason{
			Cause: fmt.Sprintf("the sandbox reached its lifetime of %v", s.Limits.Lifetime),
			Code:  sandbox.SandboxLost,
			Next:  "make a new sandbox, with a longer lifetime if the work needs it",
		}, true
	}
	if s.State == sandbox.Hibernated {
		return Reason{}, false
	}
	if !s.AtEnd.Hibernates() && !s.Ends.IsZero() && !now.Before(s.Ends) {
		return Reason{
			Cause: "the sandbox reached the end that was set for it",
			Code:  sandbox.SandboxLost,
			Next:  "make a new sandbox, or set a later end in time",
		}, true
	}
	if !busy && !now.Before(s.Used.Add(s.Limits.Idle)) {
		return Reason{
			Cause: fmt.Sprintf("the sandbox was not used for %v", s.Limits.Idle),
			Code:  sandbox.SandboxLost,
			Next:  "make a new sandbox",
		}, true
	}
	return Reason{}, false
}

// WithExpiry fills in when a sandbox stops at the latest. A hibernated sandbox
// has no idle timeout: only its lifetime counts.
func WithExpiry(s sandbox.Sandbox) sandbox.Sandbox {
	s.Expires = s.Created.Add(s.Limits.Lifetime)
	if s.State == sandbox.Hibernated {
		return s
	}
	if !s.AtEnd.Hibernates() && !s.Ends.IsZero() && s.Ends.Before(s.Expires) {
		s.Expires = s.Ends
	}
	if idle := s.Used.Add(s.Limits.Idle); idle.Before(s.Expires) {
		s.Expires = idle
	}
	return s
}
