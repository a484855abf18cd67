package rpc

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

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

// User returns the account that a request names, or "" for the default
// one.
func User(r *http.Request) string {
	name, _, _ := r.BasicAuth()
	return name
}

// byProgram marks the context of a request.
type byProgram struct{}

// ByProgram returns a request as one of a program of the box, which acts as the
// default user.
func ByProgram(r *http.Request) *http.Request {
	return r.Clone(context.WithValue(r.Context(), byProgram{}, true))
}

// IsByProgram reports whether a request came through [ByProgram].
func IsByProgram(r *http.Request) bool { return r.Context().Value(byProgram{}) != nil }

// Unary serves a unary procedure.
func Unary[In, Out any](f func(r *http.Request, in *In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !checkPost(w, r, guestapi.ContentTypeUnary) {
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, guestapi.MaxUnaryRequest))
		if err != nil {
			WriteError(w, bodyError(err))
			return
		}
		in := new(In)
		if err := decode(body, in); err != nil {
			WriteError(w, err)
			return
		}
		out, err := f(r, in)
		if err != nil {
			WriteError(w, err)
			return
		}
		WriteJSON(w, http.StatusOK, out)
	}
}

// Plain serves a request with an optional JSON body and a JSON reply, as E2B's
// code interpreter does.
func Plain[In, Out any](f func(r *http.Request, in *In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in := new(In)
		if err := ReadJSON(w, r, in); err != nil {
			WriteError(w, err)
			return
		}
		out, err := f(r, in)
		if err != nil {
			WriteError(w, err)
			return
		}
		if _, empty := any(out).(*struct{}); empty {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		WriteJSON(w, http.StatusOK, out)
	}
}

// Streaming serves a server-stream procedure. The error of f ends the stream. For
// a caller of E2B's protocol, the stream ends at the request's timeout at the
// latest, with the code of a passed deadline. Other callers get the whole stream.
func Streaming[In any](f func(r *http.Request, in *In, out *Stream) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !checkPost(w, r, guestapi.ContentTypeStream) {
			return
		}
		w.Header().Set("Content-Type", guestapi.ContentTypeStream)
		out := &Stream{w: w, rc: http.NewResponseController(w)}
		body := http.MaxBytesReader(w, r.Body, guestapi.MaxUnaryRequest)
		flags, msg, err := guestapi.ReadEnvelope(body, nil, guestapi.MaxUnaryRequest)
		timeout, terr := Timeout(r)
		switch {
		case err != nil:
			err = bodyError(err)
		case terr != nil:
			err = terr
		case flags != 0:
			err = Errorf(guestapi.CodeInvalidArgument, "unknown flags %#x of the request", flags)
		default:
			if timeout > 0 && !Extended(r) {
				ctx, cancel := context.WithTimeout(r.Context(), timeout)
				defer cancel()
				r = r.WithContext(ctx)
			}
			in := new(In)
			if err = decode(msg, in); err == nil {
				err = f(r, in, out)
			}
			if err != nil && Expired(r) {
				err = Errorf(guestapi.CodeDeadlineExceeded, "the timeout of %v has passed", timeout)
			}
		}
		out.end(err)
	}
}

// Timeout returns the timeout of a request; zero is none.
func Timeout(r *http.Request) (time.Duration, error) {
	text := r.Header.Get(guestapi.HeaderTimeout)
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseUint(text, 10, 64)
	if err != nil || len(text) > 10 {
		return 0, Errorf(guestapi.CodeInvalidArgument, "bad %s: %q", guestapi.HeaderTimeout, text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// Expired reports whether the stream of a request has to end, because its timeout
// has passed.
func Expired(r *http.Request) bool {
	deadline, ok := r.Context().Deadline()
	return ok && !time.Now().Before(deadline)
}

// Extended reports whether the caller accepts extensions of E2B's protocol.
func Extended(r *http.Request) bool { return r.Header.Get(guestapi.HeaderExtensions) != "" }

// Keepalive returns the interval of keepalives on a silent stream. The request
// may set it by E2B's header, in seconds.
func Keepalive(r *http.Request) time.Duration {
	n, err := strconv.ParseUint(r.Header.Get("Keepalive-Ping-Interval"), 10, 16)
	if err != nil || n == 0 {
		return guestapi.KeepaliveInterval
	}
	return time.Duration(n) * time.Second
}
