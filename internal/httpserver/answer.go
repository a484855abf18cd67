package httpserver

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// writeError answers with an error as JSON. It hides the details of internal
// errors.
func writeError(w http.ResponseWriter, err error) {
	text := err.Error()
	kind := sandbox.KindOf(err)
	if kind == sandbox.Internal {
		text = "internal error; the server's log says how"
	}
	if d := sandbox.RetryAfterOf(err); d > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	}
	refuse(w, kind.HTTPStatus(), string(kind), text, sandbox.HintOf(err))
}

// refuse answers with an error and the given status.
func refuse(w http.ResponseWriter, status int, kind, text, hint string) {
	type problem struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
		Hint    string `json:"hint,omitempty"`
	}
	writeJSON(w, status, map[string]problem{"error": {kind, text, hint}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	b = append(b, '\n')
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}
