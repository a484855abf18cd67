package sandbox

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A Kind is the class of an error. Edges map it to their own statuses. Kinds are
// themselves errors, so errors.Is(err, sandbox.NotFound) asks for the kind of
// err.
type Kind string

// The kinds. An error of no kind is Internal.
const (
	Invalid         Kind = "invalid"         // the caller's argument is wrong
	NotFound        Kind = "not_found"       // the object does not exist for this principal
	Exhausted       Kind = "exhausted"       // a quota or limit of the server is used up
	Unsupported     Kind = "unsupported"     // this driver, host or image does not support it
	Unavailable     Kind = "unavailable"     // a service or resource is not available now
	Conflict        Kind = "conflict"        // the state of the object does not allow the operation
	Unauthenticated Kind = "unauthenticated" // the caller is not authenticated
	Forbidden       Kind = "forbidden"       // the caller's token, or a person who was asked, does not allow the operation
	Internal        Kind = "internal"        // a fault of Glovebox
)

// ErrNoProgram is within the error of a command whose program the sandbox lacks.
var ErrNoProgram = errors.New("command: there is no program")

func (k Kind) Error() string { return string(k) }

// HTTPStatus returns the HTTP status code for the kind.
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
	case Forbidden:
		return http.StatusForbidden
	default:
		return http.StatusInternalServerError
	}
}

// Error is an error with its kind, the operation that failed, and a hint.
type Error struct {
	Kind Kind
	Op   string // the operation: "create sandbox"
	ID   string // the identifier of its object, or ""
	Err  error
	Hint string // what a person can do about it, or ""
	// RetryAfter is the time after which a retry may succeed, or zero if unknown.
	RetryAfter time.Duration
}

// Error returns "op id: cause". The hint is not part of it.
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

// Unwrap returns the cause and the kind, so errors.Is finds both.
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

// A Gap is the cause of the error for an offset in a part of a stream that was not
// kept: the bytes From up to To. The error is of kind [NotFound].
type Gap struct {
	Stream   StreamName
	From, To int64
}

func (g *Gap) Error() string {
	return fmt.Sprintf("offset: bytes %d to %d of %s were not kept", g.From, g.To, g.Stream)
}

// NotKept returns the text that stands for n bytes of output that were not kept.
func NotKept(n int64) string { return fmt.Sprintf("\n[... %d bytes were not kept ...]\n", n) }

// WithHint returns err with a hint for a person, which [HintOf] finds.
func WithHint(err error, format string, args ...any) error {
	return &Error{Kind: KindOf(err), Err: err, Hint: fmt.Sprintf(format, args...)}
}

// WithRetryAfter returns err with the time after which to try again, which
// [RetryAfterOf] finds.
func WithRetryAfter(err error, d time.Duration) error {
	return &Error{Kind: KindOf(err), Err: err, RetryAfter: d}
}

// NoSpace returns an error of kind [Exhausted] for a full disk of the server.
func NoSpace(err error) error {
	return WithHint(Errorf(Exhausted, "the server's disk is full: %w", err),
		"try again later, or ask the operator to free space on the disk of the state directory")
}

// Wrap returns err with the operation op and the identifier id of its object. It
// keeps the kind and the hint. It returns nil for a nil err. The text of an err that
// is about the same operation, such as one of the guest, names it once.
func Wrap(err error, op, id string) error {
	if err == nil {
		return nil
	}
	kind := KindOf(err)
	if of, ok := err.(*Error); ok && of.Op == op && of.ID == "" && of.Err != nil { //nolint:errorlint // only the outermost error is of the same operation
		again := *of
		again.Op = ""
		err = &again
	}
	return &Error{Kind: kind, Op: op, ID: id, Err: err}
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

// RetryAfterOf returns the time after which to retry the operation that failed
// with err, or zero if it is not known.
func RetryAfterOf(err error) time.Duration {
	e := outermost(err, func(e *Error) bool { return e.RetryAfter > 0 })
	if e == nil {
		return 0
	}
	return e.RetryAfter
}

// outermost returns the first Error in err for which has is true, or nil.
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
