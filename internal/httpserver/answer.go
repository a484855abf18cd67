package httpserver

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/glovebox-dev/glovebox/internal/problem"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// writeError answers with an error as JSON. It hides the details of internal
// errors.
func writeError(w http.ResponseWriter, err error) {
	p := problem.Of(err, []string{"path", "workspace", "sandbox_id", "port", "principal", "since", "until", "by", "format"})
	problem.Write(w, p.Kind.HTTPStatus(), p)
}

// refuse answers with an error and the given status.
func refuse(w http.ResponseWriter, status int, kind, text, hint string) {
	problem.Write(w, status, sandbox.Problem{Kind: sandbox.Kind(kind), Message: text, Hint: hint})
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
