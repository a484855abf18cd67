// Package problem writes errors as answers of HTTP (RFC 9457).
//
// httpserver and adminapi import it. E2B's protocol and MCP have forms of their own.
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ContentType is the media type of an answer.
const ContentType = "application/problem+json"

// A document is the body of an answer. Error repeats the problem for clients of before
// this form.
type document struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	sandbox.Problem
	Message string          `json:"message,omitempty"` // only in Error
	Error   sandbox.Problem `json:"error"`
}

// Of describes an error, without the details of internal ones. arguments are the names
// of the request's arguments.
func Of(err error, arguments []string) sandbox.Problem {
	p := sandbox.ProblemOf(err, arguments)
	if p.Kind == sandbox.Internal {
		p.Message = "internal error; the server's log says how"
	}
	return p
}

// Write answers with a problem.
func Write(w http.ResponseWriter, status int, p sandbox.Problem) {
	b, err := json.Marshal(document{Title: http.StatusText(status), Status: status, Detail: p.Message, Problem: p, Error: p})
	if err != nil {
		status, b = http.StatusInternalServerError, []byte("{}")
	}
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	b = append(b, '\n')
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}
