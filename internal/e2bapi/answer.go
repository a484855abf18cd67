package e2bapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// goneError says that a sandbox does not run, which E2B's data plane answers as
// a proxy does that does not reach it.
type goneError struct{ err error }

func (e *goneError) Error() string { return e.err.Error() }
func (e *goneError) Unwrap() error { return e.err }

// forbiddenError says that an API key is not good for this.
type forbiddenError struct{ text string }

func (e *forbiddenError) Error() string { return e.text }

// statusOf maps an error for HTTP.
func statusOf(err error) int {
	if _, ok := errors.AsType[*goneError](err); ok {
		return http.StatusBadGateway
	}
	if _, ok := errors.AsType[*forbiddenError](err); ok {
		return http.StatusForbidden
	}
	return sandbox.KindOf(err).HTTPStatus()
}

// codeOf maps an error for Connect.
func codeOf(status int) guestapi.Code {
	switch status {
	case http.StatusBadRequest:
		return guestapi.CodeInvalidArgument
	case http.StatusUnauthorized:
		return guestapi.CodeUnauthenticated
	case http.StatusForbidden:
		return guestapi.CodePermissionDenied
	case http.StatusNotFound:
		return guestapi.CodeNotFound
	case http.StatusConflict:
		return guestapi.CodeFailedPrecondition
	case http.StatusTooManyRequests:
		return guestapi.CodeResourceExhausted
	case http.StatusNotImplemented:
		return guestapi.CodeUnimplemented
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return guestapi.CodeUnavailable
	}
	return guestapi.CodeInternal
}

// Refuse answers a request with an error, in the form that its sender reads.
// What went wrong inside is not theirs to read.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	text := err.Error()
	if hint := sandbox.HintOf(err); hint != "" {
		text += "; " + hint
	}
	if status == http.StatusInternalServerError {
		s.opts.Log.Error("serve E2B", "path", r.URL.Path, "error", err)
		text = "internal error; the server's log says how"
	}
	if d := sandbox.RetryAfterOf(err); d > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	}
	if !strings.HasPrefix(r.URL.Path, "/process.") && !strings.HasPrefix(r.URL.Path, "/filesystem.") {
		writeJSON(w, status, map[string]any{"code": status, "message": text})
		return
	}
	wire := &guestapi.WireError{Code: codeOf(status), Message: text}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), guestapi.ContentTypeStream) {
		writeJSON(w, status, wire)
		return
	}
	// A stream says so in its last message; its status is of no interest.
	last, err := json.Marshal(guestapi.EndStream{Error: wire})
	if err != nil {
		panic(err) // text always encodes
	}
	w.Header().Set("Content-Type", guestapi.ContentTypeStream)
	w.Write(guestapi.AppendEnvelope(nil, guestapi.FlagEndStream, last))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"code":500}`)
	}
	w.Header().Set("Content-Type", guestapi.ContentTypeUnary)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(b)
}

// answer serves a request of the control plane. The value is the answer's body
// unless it is nil.
func (s *Server) answer(f func(r *http.Request, p sandbox.Principal) (int, any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, _ := auth.FromContext(r.Context())
		err := grant(id)
		if err == nil {
			var status int
			var v any
			if status, v, err = f(r, id.Principal); err == nil {
				if p, ok := v.(page); ok {
					if p.next != "" {
						w.Header().Set("X-Next-Token", p.next)
					}
					v = p.items
				}
				if v == nil {
					w.WriteHeader(status)
				} else {
					writeJSON(w, status, v)
				}
				return
			}
		}
		s.Refuse(w, r, err)
	}
}

// maxBody bounds the body of a request of the control plane.
const maxBody = 1 << 20

// readBody decodes a request's body, which may be absent. A field that is not
// known is refused: it may ask for what cannot be done.
func readBody(r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil && r.ContentLength != 0 {
		return sandbox.Errorf(sandbox.Invalid, "request: %w", err)
	}
	return nil
}

// short bounds a text of a client that goes into a message.
func short(s string) string { return fmt.Sprintf("%.80q", s) }
