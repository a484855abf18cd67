package transport

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// codeSessionEnd is the code of the error that a session does not exist.
const codeSessionEnd = -32001

// errorMessage returns a JSON-RPC error message.
func errorMessage(id json.RawMessage, code int64, text string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	// json.Marshal cannot fail for a string: it replaces invalid UTF-8.
	quoted, _ := json.Marshal(text)
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code, quoted)
}

// writeError answers with a JSON-RPC error.
func writeError(w http.ResponseWriter, status int, id json.RawMessage, code int64, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	w.Write(errorMessage(id, code, text))
}

// An errorWriter turns the plain-text errors of the SDK's handlers into JSON-RPC
// errors, the only form that clients can read.
type errorWriter struct {
	http.ResponseWriter
	id     json.RawMessage
	before func() // called before anything is written, possibly several times; may be nil
	always int    // status code of all JSON-RPC errors, if not 0
	status int    // status code of a plain-text error
	done   bool
}

// WriteHeader delays the header of a plain-text error until its text is written.
func (w *errorWriter) WriteHeader(status int) {
	w.begin()
	if status >= 400 && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *errorWriter) Write(b []byte) (int, error) {
	w.begin()
	if w.status == 0 {
		return w.ResponseWriter.Write(b)
	}
	if !w.done {
		w.done = true
		text := strings.TrimSpace(string(b))
		code := int64(jsonrpc.CodeInvalidRequest)
		switch {
		case w.status == http.StatusNotFound:
			code = codeSessionEnd
		case strings.HasPrefix(text, "JSON RPC not handled"):
			code = jsonrpc.CodeMethodNotFound
		}
		w.Header().Del("X-Content-Type-Options")
		writeError(w.ResponseWriter, cmp.Or(w.always, w.status), w.id, code, text)
	}
	return len(b), nil
}

func (w *errorWriter) begin() {
	if w.before != nil {
		w.before()
	}
}

// Unwrap gives http.ResponseController access to the connection.
func (w *errorWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements [http.Flusher], with which the SDK streams.
func (w *errorWriter) Flush() {
	w.begin()
	if w.status == 0 {
		// Ignore the error: if the connection failed, the next write reports it.
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

func tooManySessions(w http.ResponseWriter, id json.RawMessage) {
	w.Header().Set("Retry-After", strconv.Itoa(int(ledger.RetryAfter.Seconds())))
	writeError(w, http.StatusServiceUnavailable, id, jsonrpc.CodeInternalError, "too many sessions are open on this server")
}

// tooMuch refuses a request because its principal has used up its share.
func tooMuch(w http.ResponseWriter, id json.RawMessage, err error) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(sandbox.RetryAfterOf(err).Seconds()))))
	writeError(w, http.StatusServiceUnavailable, id, jsonrpc.CodeInternalError, err.Error())
}
