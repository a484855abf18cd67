package e2bapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/e2bapi/templates"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// goneError is the error for a sandbox that does not run. E2B's data plane
// answers it with 502, as a proxy does for an unreachable server.
type goneError struct{ err error }

func (e *goneError) Error() string { return e.err.Error() }
func (e *goneError) Unwrap() error { return e.err }

// A portError is the answer for a program's port in the form of E2B's proxy.
type portError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

func (e *portError) Error() string { return e.Message }

// noTrafficToken returns the error for a port that needs a token. It does not
// reveal whether the sandbox exists. Clients of E2B know the texts.
func noTrafficToken(t target, given bool) error {
	text := "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
	if given {
		text = "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"
	}
	return &portError{SandboxID: shortID(t.id), Message: text, Code: http.StatusForbidden}
}

// portClosed returns the error for a port on which no program listens.
func portClosed(t target) error {
	return &portError{SandboxID: shortID(t.id), Message: "The sandbox is running but port is not open", Port: t.port, Code: http.StatusBadGateway}
}

// portGone returns the error for a port that cannot be reached for the reason err. If
// the sandbox is gone, it has the text that clients of E2B know.
func portGone(t target, err error) error {
	text := textOf(err)
	if errors.Is(err, sandbox.NotFound) {
		text = "The sandbox was not found"
	}
	return &portError{SandboxID: shortID(t.id), Message: text, Port: t.port, Code: http.StatusBadGateway}
}

// shortID returns a sandbox identifier for an answer, and bounds any other text.
func shortID(id string) string { return fmt.Sprintf("%.80s", sandbox.HostID(id)) }

// textOf returns an error's text without the operations of the engine and the
// driver, which mean nothing to a client, and with its hint.
func textOf(err error) string {
	text := withoutOps(err).Error()
	if hint := sandbox.HintOf(err); hint != "" {
		text += "; " + hint
	}
	return text
}

func withoutOps(err error) error {
	switch e := err.(type) { //nolint:errorlint // only the outermost errors
	case *goneError:
		return withoutOps(e.err)
	case *sandbox.Error:
		if e.Err != nil {
			return withoutOps(e.Err)
		}
	}
	return err
}

// forbiddenError is the error for an API key without the necessary scopes.
type forbiddenError struct{ text string }

func (e *forbiddenError) Error() string { return e.text }

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	if _, ok := errors.AsType[*goneError](err); ok {
		return http.StatusBadGateway
	}
	if _, ok := errors.AsType[*forbiddenError](err); ok {
		return http.StatusForbidden
	}
	if e, ok := errors.AsType[*portError](err); ok {
		return e.Code
	}
	if status := templates.StatusOf(err); status != 0 {
		return status
	}
	return sandbox.KindOf(err).HTTPStatus()
}

// codeOf returns the Connect code for an HTTP status.
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

// Refuse answers a request with an error, in the format that the client expects.
// It logs internal errors and hides their details from the client.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	text := textOf(err)
	if status == http.StatusInternalServerError {
		s.opts.Log.Error("serve E2B", "path", r.URL.Path, "error", err)
		text = "internal error; the server's log says how"
	}
	if d := sandbox.RetryAfterOf(err); d > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	}
	if e, ok := errors.AsType[*portError](err); ok {
		writeJSON(w, status, e)
		return
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
	// A stream reports an error in its last message; clients ignore its status.
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

// answer wraps a handler of the control plane. The handler's value becomes the
// answer's body; nil is no body.
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
				if p, ok := v.(templates.Page); ok {
					if p.Next != "" {
						w.Header().Set("X-Next-Token", p.Next)
					}
					v = p.Items
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

// maxBody bounds the body of a control-plane request, in bytes.
const maxBody = 1 << 20

// readBody decodes a request's body, which may be absent. It refuses unknown
// fields and a second value, because they may ask for something that the server
// cannot do.
func readBody(r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if errors.Is(err, io.EOF) {
		return nil // no body
	}
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("the body has more than one JSON value")
	}
	return sandbox.Errorf(sandbox.Invalid, "request: %w", err)
}

// short quotes and truncates a client's text for an error message.
func short(s string) string { return fmt.Sprintf("%.80q", s) }
