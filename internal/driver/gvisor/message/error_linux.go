package message

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Error carries an error with the properties that callers examine.
type Error struct {
	Kind        sandbox.Kind `json:"kind"`
	Text        string       `json:"text"`
	Hint        string       `json:"hint,omitempty"`
	Gone        bool         `json:"gone,omitempty"`
	Unavailable bool         `json:"unavailable,omitempty"`
}

// NewError returns the form in which an error is sent; nil is no error.
func NewError(err error) *Error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) && sandbox.KindOf(err) == sandbox.Internal {
		err = sandbox.NoSpace(err)
	}
	return &Error{
		Kind:        sandbox.KindOf(err),
		Text:        err.Error(),
		Hint:        sandbox.HintOf(err),
		Gone:        errors.Is(err, driver.ErrGone),
		Unavailable: errors.Is(err, driver.ErrUnavailable),
	}
}

// remoteError is an error that the supervisor returned.
type remoteError struct{ w Error }

func (e *remoteError) Error() string { return e.w.Text }

func (e *remoteError) Is(target error) bool {
	return e.w.Gone && target == driver.ErrGone ||
		e.w.Unavailable && target == driver.ErrUnavailable
}

// Err returns the error that was sent, or nil.
func (w *Error) Err() error {
	if w == nil {
		return nil
	}
	return &sandbox.Error{Kind: w.Kind, Err: &remoteError{*w}, Hint: w.Hint}
}
