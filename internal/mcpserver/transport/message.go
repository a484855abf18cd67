package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/jsonbound"
)

// These names of the protocol decide which era a request belongs to.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	firstModern   = "2026-07-28"
)

// readBody reads a body of at most that many bytes. If that fails, it sends the
// error answer and returns false.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, bool) {
	body, ok := readWhole(w, r, most)
	if ok && jsonbound.Values(body) > maxValues {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest,
			fmt.Sprintf("the body has more than %d JSON values: send large data as text", maxValues))
		return nil, false
	}
	return body, ok
}

func readWhole(w http.ResponseWriter, r *http.Request, most int64) ([]byte, bool) {
	// Package httpserver has already read most bodies into memory.
	if b, ok := r.Body.(interface{ Whole() []byte }); ok && int64(len(b.Whole())) <= most {
		return b.Whole(), true
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil {
		return body, true
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		writeError(w, http.StatusRequestEntityTooLarge, nil, jsonrpc.CodeInvalidRequest,
			fmt.Sprintf("the message is larger than %d bytes, the most this server takes", tooLarge.Limit))
	} else {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "the body ended early")
	}
	return nil, false
}

// A message holds the fields of a JSON-RPC message that the dispatch needs.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta   map[string]json.RawMessage `json:"_meta"`
		TaskID string                     `json:"taskId"`
	} `json:"params"`
}

// id returns the message's id if it is a string or a number, which an answer may
// repeat; otherwise nil.
func (m message) id() json.RawMessage {
	if len(m.ID) > 0 && (m.ID[0] == '"' || m.ID[0] == '-' || m.ID[0] >= '0' && m.ID[0] <= '9') {
		return m.ID
	}
	return nil
}

// peek decodes the fields of a body that the dispatch needs. It accepts any valid
// JSON: the handler that gets the body refuses other errors.
func peek(body []byte) (message, error) {
	var m message
	if !json.Valid(body) {
		return m, errors.New("the body is not JSON")
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return message{}, nil //nolint:nilerr // batches and odd shapes are the handlers' to refuse
	}
	return m, nil
}

// maxBatch bounds the messages in one request. The SDK handles all of them
// concurrently, and they count as one request.
const maxBatch = 32

// Bounds of a message. Each value of its JSON takes valueCost bytes of memory once it
// is decoded, whatever its length.
const (
	maxValues = 100_000
	valueCost = 80
)

// messageCost returns the memory that the messages of a body take, in bytes.
func messageCost(body []byte) int { return len(body) + jsonbound.Values(body)*valueCost }

// batchSize returns the number of messages in a batch, and 0 for a body that is
// no batch.
func batchSize(body []byte) int {
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) == 0 || body[0] != '[' {
		return 0
	}
	var batch []json.RawMessage
	if json.Unmarshal(body, &batch) != nil {
		return 0 // the handler refuses it
	}
	return len(batch)
}

// isModern reports whether a request belongs to the stateless era, which begins
// with version 2026-07-28. An initialize request does not, unless it has metadata
// that only that era has. Then the modern handler refuses it.
func isModern(r *http.Request, m message) bool {
	if r.Method != http.MethodPost || r.Header.Get(sessionHeader) != "" {
		return false
	}
	if _, ok := m.Params.Meta[mcp.MetaKeyProtocolVersion]; ok {
		return true
	}
	if m.Method == "initialize" {
		return false
	}
	return m.Method == "server/discover" || r.Header.Get(versionHeader) >= firstModern
}
