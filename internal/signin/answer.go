package signin

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// refuse answers with an error of OAuth. Its description allows neither quotes nor
// backslashes (RFC 6749).
func refuse(w http.ResponseWriter, status int, code, description string) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	writeJSON(w, status, map[string]string{"error": code, "error_description": plain(description)})
}

func plain(text string) string {
	b := []byte(text)
	for i, c := range b {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			b[i] = '\''
		}
	}
	return string(b)
}

// fail answers with an error of the server's own.
func (s *Server) fail(w http.ResponseWriter, err error) {
	if errors.Is(err, sandbox.Exhausted) {
		refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable", err.Error())
		return
	}
	s.opts.Log.Error("sign-in", "error", err)
	refuse(w, http.StatusInternalServerError, "server_error", "internal error; the log of the server has the cause")
}

func wrongMethod(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	refuse(w, http.StatusMethodNotAllowed, "invalid_request", "the method must be "+allowed)
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
