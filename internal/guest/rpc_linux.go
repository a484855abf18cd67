package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// errf returns an error that is answered with code.
func errf(code guestapi.Code, format string, args ...any) error {
	return &guestapi.WireError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// wireError returns err in the form in which it is answered.
func wireError(err error) *guestapi.WireError {
	var w *guestapi.WireError
	if errors.As(err, &w) {
		return w
	}
	return &guestapi.WireError{Code: guestapi.CodeInternal, Message: err.Error()}
}

// httpStatus returns the HTTP status that Connect gives a unary error.
func httpStatus(c guestapi.Code) int {
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

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"code":"internal"}`)
	}
	w.Header().Set("Content-Type", guestapi.ContentTypeUnary)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}

func writeError(w http.ResponseWriter, err error) {
	we := wireError(err)
	writeJSON(w, httpStatus(we.Code), we)
}

// checkPost reports whether r is a POST of that media type, and answers it if
// not.
func checkPost(w http.ResponseWriter, r *http.Request, contentType string) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return false
	}
	mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mt != contentType {
		w.Header().Set("Accept-Post", contentType)
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return false
	}
	return true
}

// requestUser returns the account that a request names, or "" for the default
// one.
func requestUser(r *http.Request) string {
	name, _, _ := r.BasicAuth()
	return name
}

// unary serves a unary procedure.
func unary[In, Out any](f func(r *http.Request, in *In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !checkPost(w, r, guestapi.ContentTypeUnary) {
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, guestapi.MaxUnaryRequest))
		if err != nil {
			writeError(w, bodyError(err))
			return
		}
		in := new(In)
		if err := decode(body, in); err != nil {
			writeError(w, err)
			return
		}
		out, err := f(r, in)
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, out)
	}
}

func decode(body []byte, in any) error {
	if err := json.Unmarshal(body, in); err != nil {
		return errf(guestapi.CodeInvalidArgument, "decode request: %v", err)
	}
	return nil
}

func bodyError(err error) error {
	if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errf(guestapi.CodeInvalidArgument, "request exceeds %d bytes", tooBig.Limit)
	}
	return errf(guestapi.CodeCanceled, "read request: %v", err)
}

// server serves a server-stream procedure. The error of f ends the stream.
func server[In any](f func(r *http.Request, in *In, out *stream) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !checkPost(w, r, guestapi.ContentTypeStream) {
			return
		}
		w.Header().Set("Content-Type", guestapi.ContentTypeStream)
		out := &stream{w: w, rc: http.NewResponseController(w)}
		body := http.MaxBytesReader(w, r.Body, guestapi.MaxUnaryRequest)
		flags, msg, err := guestapi.ReadEnvelope(body, nil, guestapi.MaxUnaryRequest)
		switch {
		case err != nil:
			err = bodyError(err)
		case flags != 0:
			err = errf(guestapi.CodeInvalidArgument, "unknown flags %#x of the request", flags)
		default:
			in := new(In)
			if err = decode(msg, in); err == nil {
				err = f(r, in, out)
			}
		}
		out.end(err)
	}
}

// A stream writes a server stream's messages.
type stream struct {
	w     io.Writer
	rc    *http.ResponseController
	ended bool
}

// raw writes a whole envelope and flushes it.
func (s *stream) raw(envelope []byte) error {
	if _, err := s.w.Write(envelope); err != nil {
		return err
	}
	return s.rc.Flush()
}

func (s *stream) send(v any) error { return s.envelope(0, v) }

func (s *stream) envelope(flags byte, v any) error {
	b, err := appendMessage(nil, flags, v)
	if err != nil {
		return err
	}
	return s.raw(b)
}

func appendMessage(b []byte, flags byte, v any) ([]byte, error) {
	msg, err := json.Marshal(v)
	if err != nil {
		return nil, errf(guestapi.CodeInternal, "encode message: %v", err)
	}
	return guestapi.AppendEnvelope(b, flags, msg), nil
}

// last sends the last message and the end of the stream in one write.
func (s *stream) last(v any) error {
	b, err := appendMessage(nil, 0, v)
	if err != nil {
		return err
	}
	if b, err = appendMessage(b, guestapi.FlagEndStream, &guestapi.EndStream{}); err != nil {
		return err
	}
	s.ended = true
	return s.raw(b)
}

// end ends the stream, unless last did. An error is ignored: the reader may be
// gone.
func (s *stream) end(err error) {
	if s.ended {
		return
	}
	var last guestapi.EndStream
	if err != nil {
		last.Error = wireError(err)
	}
	_ = s.envelope(guestapi.FlagEndStream, &last)
}

// extended reports whether the caller accepts extensions of E2B's protocol.
func extended(r *http.Request) bool { return r.Header.Get(guestapi.HeaderExtensions) != "" }

// keepalive returns the interval of keepalives on a silent stream. The request
// may set it by E2B's header, in seconds.
func keepalive(r *http.Request) time.Duration {
	n, err := strconv.ParseUint(r.Header.Get("Keepalive-Ping-Interval"), 10, 16)
	if err != nil || n == 0 {
		return guestapi.KeepaliveInterval
	}
	return time.Duration(n) * time.Second
}

// fileError returns the error of a file operation on path in the form of an
// answer.
func fileError(err error, path string) error {
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
			return errf(guestapi.CodeInternal, "%s: %v", path, err)
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
	return errf(code, "%s: %s", path, errno.Error())
}
