package httpserver

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// writeError answers with an error as JSON. It hides the details of internal
// errors.
func writeError(w http.ResponseWriter, err error) {
	p := sandbox.ProblemOf(err, []string{"path", "workspace", "sandbox_id", "port"})
	if p.Kind == sandbox.Internal {
		p.Message = "internal error; the server's log says how"
	}
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	writeProblem(w, p.Kind.HTTPStatus(), p)
}

// refuse answers with an error and the given status.
func refuse(w http.ResponseWriter, status int, kind, text, hint string) {
	writeProblem(w, status, sandbox.Problem{Kind: sandbox.Kind(kind), Message: text, Hint: hint})
}

// writeProblem answers with p, as the member error of an object.
func writeProblem(w http.ResponseWriter, status int, p sandbox.Problem) {
	writeJSON(w, status, map[string]sandbox.Problem{"error": p})
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
