package sandbox

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A Kind is the class of an error: what an edge needs to know to answer it.
// Kinds are themselves errors, so errors.Is(err, sandbox.NotFound) asks for
// the kind of err.
type Kind string

// The kinds. An error of no kind is Internal.
const (
	Invalid         Kind = "invalid"         // the caller's argument is wrong
	NotFound        Kind = "not_found"       // no such thing, for this principal
	Exhausted       Kind = "exhausted"       // a quota or limit of the server is used up
	Unsupported     Kind = "unsupported"     // this driver, host or image cannot do it
	Unavailable     Kind = "unavailable"     // not now: something needed is not there
	Conflict        Kind = "conflict"        // the thing is not in a state for it
	Unauthenticated Kind = "unauthenticated" // who is asking is not known
	Internal        Kind = "internal"        // a fault of ours
)

func (k Kind) Error() string { return string(k) }

// HTTPStatus is the status with which an answer over HTTP says the kind.
func (k Kind) HTTPStatus() int {
	switch k {
	case Invalid:
		return http.StatusBadRequest
	case NotFound:
		return http.StatusNotFound
	case Exhausted:
		return http.StatusTooManyRequests
	case Unsupported:
		return http.StatusNotImplemented
	case Unavailable:
		return http.StatusServiceUnavailable
	case Conflict:
		return http.StatusConflict
	case Unauthenticated:
		return http.StatusUnauthorized
	default:
		return http.StatusInternalServerError
	}
}

// Error is an error of a kind, with what was tried and what a person can do.
type Error struct {
	Kind Kind
	Op   string // what was tried: "create sandbox"
	ID   string // on what, if on something
	Err  error
	Hint string // what to do about it, if there is something
	// RetryAfter is in what time it may go well, if that is known.
	RetryAfter time.Duration
}

// Error reads "op id: cause"; the hint is not part of it.
func (e *Error) Error() string {
	s := ""
	if e.Op != "" {
		s = e.Op
		if e.ID != "" {
			s += " " + e.ID
		}
		s += ": "
	}
	if e.Err == nil {
		return s + string(e.Kind)
	}
	return s + e.Err.Error()
}

// Unwrap gives the cause and the kind, so errors.Is finds both.
func (e *Error) Unwrap() []error {
	errs := make([]error, 0, 2)
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	if e.Kind != "" {
		errs = append(errs, e.Kind)
	}
	return errs
}

// Errorf returns an error of kind k; format is as for [fmt.Errorf].
func Errorf(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// WithHint returns err with a remedy that [HintOf] finds.
func WithHint(err error, format string, args ...any) error {
	return &Error{Kind: KindOf(err), Err: err, Hint: fmt.Sprintf(format, args...)}
}

// WithRetryAfter returns err with the time after which to try again, which
// [RetryAfterOf] finds.
func WithRetryAfter(err error, d time.Duration) error {
	return &Error{Kind: KindOf(err), Err: err, RetryAfter: d}
}

// NoSpace is the error for what the server's own disk has no room for.
func NoSpace(err error) error {
	return WithHint(Errorf(Exhausted, "the server's disk is full: %w", err),
		"try again later, or have the operator make room where the server's state directory is")
}

// Wrap returns err with what was tried and on what, keeping its kind and hint.
// It returns nil for a nil err.
func Wrap(err error, op, id string) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: KindOf(err), Op: op, ID: id, Err: err}
}

// KindOf returns the kind of err, Internal for an error of no kind, and "" for
// nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var k Kind
	if errors.As(err, &k) {
		return k
	}
	return Internal
}

// HintOf returns the outermost hint in err, or "".
func HintOf(err error) string {
	e := outermost(err, func(e *Error) bool { return e.Hint != "" })
	if e == nil {
		return ""
	}
	return e.Hint
}

// RetryAfterOf returns after what time to try again what failed with err; zero
// if that is not known.
func RetryAfterOf(err error) time.Duration {
	e := outermost(err, func(e *Error) bool { return e.RetryAfter > 0 })
	if e == nil {
		return 0
	}
	return e.RetryAfter
}

// outermost returns the first Error in err that has what is wanted, or nil.
func outermost(err error, has func(*Error) bool) *Error {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return nil
		}
		if has(e) {
			return e
		}
		err = e.Err
	}
	return nil
}
