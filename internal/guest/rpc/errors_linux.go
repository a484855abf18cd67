package rpc

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Errorf returns an error that is answered with code.
func Errorf(code guestapi.Code, format string, args ...any) error {
	return &guestapi.WireError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wire returns err in the form in which it is answered.
func Wire(err error) *guestapi.WireError {
	var w *guestapi.WireError
	if errors.As(err, &w) {
		return w
	}
	return &guestapi.WireError{Code: guestapi.CodeInternal, Message: err.Error()}
}

// Status returns the HTTP status that Connect gives a unary error.
func Status(c guestapi.Code) int {
	switch c {
	case guestapi.CodeInvalidArgument, guestapi.CodeOutOfRange, guestapi.CodeFailedPrecondition:
		return http.StatusBadRequest
	case guestapi.CodeNotFound:
		return http.StatusNotFound
	case guestapi.CodeAlreadyExists, guestapi.CodeAborted:
		return http.StatusConflict
	case guestapi.CodePermissionDenied:
		return http.StatusForbidden
	case guestapi.CodeUnauthenticated:
		return http.StatusUnauthorized
	case guestapi.CodeResourceExhausted:
		return http.StatusTooManyRequests
	case guestapi.CodeUnimplemented:
		return http.StatusNotImplemented
	case guestapi.CodeUnavailable:
		return http.StatusServiceUnavailable
	case guestapi.CodeDeadlineExceeded:
		return http.StatusGatewayTimeout
	case guestapi.CodeCanceled:
		return 499
	}
	return http.StatusInternalServerError
}

// FileError returns the error of a file operation on path in the form of an
// answer.
func FileError(err error, path string) error {
	if err == nil {
		return nil
	}
	var w *guestapi.WireError
	if errors.As(err, &w) {
		return err
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		if errors.Is(err, fs.ErrNotExist) {
			errno = unix.ENOENT
		} else {
			return Errorf(guestapi.CodeInternal, "%s: %v", path, err)
		}
	}
	code := guestapi.CodeInternal
	switch errno {
	case unix.ENOENT:
		code = guestapi.CodeNotFound
	case unix.EEXIST:
		code = guestapi.CodeAlreadyExists
	case unix.EACCES, unix.EPERM, unix.EROFS:
		code = guestapi.CodePermissionDenied
	case unix.ENOTDIR, unix.EISDIR, unix.ENAMETOOLONG, unix.ELOOP, unix.EINVAL:
		code = guestapi.CodeInvalidArgument
	case unix.ENOTEMPTY, unix.EBUSY, unix.ETXTBSY:
		code = guestapi.CodeFailedPrecondition
	case unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.ENOMEM:
		code = guestapi.CodeResourceExhausted
	}
	return Errorf(code, "%s: %s", path, errno.Error())
}

// Exhausted returns the error of a system call that may have lacked a resource.
func Exhausted(what string, err error) error {
	code := guestapi.CodeInternal
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN, unix.ENOSPC, unix.EIO} {
		if errors.Is(err, e) {
			code = guestapi.CodeResourceExhausted
		}
	}
	return Errorf(code, "%s: %v", what, err)
}
