package rpc

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// WriteJSON writes a whole reply.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"code":"internal"}`)
	}
	w.Header().Set("Content-Type", guestapi.ContentTypeUnary)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}

// WriteError answers with an error.
func WriteError(w http.ResponseWriter, err error) {
	we := Wire(err)
	WriteJSON(w, Status(we.Code), we)
}

// ReadJSON decodes a request's body, if there is one.
func ReadJSON(w http.ResponseWriter, r *http.Request, in any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, guestapi.MaxUnaryRequest))
	if err != nil {
		return bodyError(err)
	}
	if len(body) == 0 {
		return nil
	}
	if mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mt != guestapi.ContentTypeUnary {
		return Errorf(guestapi.CodeInvalidArgument, "the body is not declared as %s", guestapi.ContentTypeUnary)
	}
	return decode(body, in)
}

func decode(body []byte, in any) error {
	if err := json.Unmarshal(body, in); err != nil {
		return Errorf(guestapi.CodeInvalidArgument, "decode request: %v", err)
	}
	return nil
}

func bodyError(err error) error {
	if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return Errorf(guestapi.CodeInvalidArgument, "request exceeds %d bytes", tooBig.Limit)
	}
	return Errorf(guestapi.CodeCanceled, "read request: %v", err)
}
