package guestapi

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Headers and media types of Connect's protocol.
const (
	ContentTypeUnary  = "application/json"
	ContentTypeStream = "application/connect+json"

	HeaderProtocolVersion = "Connect-Protocol-Version"
	HeaderTimeout         = "Connect-Timeout-Ms"
)

// MaxTimeoutMillis is the longest timeout in Connect's protocol, which has ten
// digits: 115 days. A program without a timeout has none in its request.
const MaxTimeoutMillis = 9_999_999_999

// HeaderExtensions, with any value, asks for extensions of E2B's protocol in
// answers. Without it an answer has only E2B's fields, because some of E2B's
// clients reject unknown fields.
const HeaderExtensions = "Glovebox-Extensions"

// Bounds of unary messages, in bytes of JSON.
const (
	MaxUnaryRequest  = 4 << 20
	MaxUnaryResponse = 16 << 20
)

// FlagEndStream marks the last envelope of a stream. Its message is an
// [EndStream].
const FlagEndStream = 2

const envelopeHeader = 5

// A Code is Connect's name for a class of errors.
type Code string

// The codes in answers of the guest, or of an agent of E2B.
const (
	CodeCanceled           Code = "canceled"
	CodeInvalidArgument    Code = "invalid_argument"
	CodeDeadlineExceeded   Code = "deadline_exceeded"
	CodeNotFound           Code = "not_found"
	CodeAlreadyExists      Code = "already_exists"
	CodePermissionDenied   Code = "permission_denied"
	CodeResourceExhausted  Code = "resource_exhausted"
	CodeFailedPrecondition Code = "failed_precondition"
	CodeAborted            Code = "aborted"
	CodeOutOfRange         Code = "out_of_range"
	CodeUnimplemented      Code = "unimplemented"
	CodeInternal           Code = "internal"
	CodeUnavailable        Code = "unavailable"
	CodeUnauthenticated    Code = "unauthenticated"
)

// Kind returns the kind of error for c. A refusal by file permissions is
// Invalid: the caller named a file that its user may not access.
func (c Code) Kind() sandbox.Kind {
	switch c {
	case CodeInvalidArgument, CodeOutOfRange, CodePermissionDenied:
		return sandbox.Invalid
	case CodeNotFound:
		return sandbox.NotFound
	case CodeAlreadyExists, CodeFailedPrecondition, CodeAborted:
		return sandbox.Conflict
	case CodeResourceExhausted:
		return sandbox.Exhausted
	case CodeUnimplemented:
		return sandbox.Unsupported
	case CodeUnavailable, CodeCanceled, CodeDeadlineExceeded:
		return sandbox.Unavailable
	case CodeUnauthenticated:
		return sandbox.Unauthenticated
	}
	return sandbox.Internal
}

// WireError is the body of a unary error, and the error within [EndStream].
type WireError struct {
	Code    Code   `json:"code"`
	Message string `json:"message,omitempty"`
}

func (e *WireError) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

// EndStream is the last message of a stream. Error is nil on success.
type EndStream struct {
	Error *WireError `json:"error,omitempty"`
}

// FileError is the body of an error of PathFiles: an HTTP status and a text.
type FileError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// AppendEnvelope appends msg to dst as one envelope of a stream.
func AppendEnvelope(dst []byte, flags byte, msg []byte) []byte {
	dst = append(dst, flags)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(msg)))
	return append(dst, msg...)
}

// ReadEnvelope reads one envelope of at most limit bytes from r. If the message
// fits into buf, it shares buf's memory. At the end of r the error is io.EOF,
// and within an envelope io.ErrUnexpectedEOF.
func ReadEnvelope(r io.Reader, buf []byte, limit int) (flags byte, msg []byte, err error) {
	var head [envelopeHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if int64(n) > int64(limit) {
		return 0, nil, fmt.Errorf("message of %d bytes exceeds %d", n, limit)
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	msg = buf[:n]
	if _, err := io.ReadFull(r, msg); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return head[0], msg, nil
}

// maxErrorText bounds the error texts of a guest, in bytes.
const maxErrorText = 4 << 10

// cleanText makes a guest's text safe for a message: bounded, UTF-8, one line,
// and without characters that control a terminal or the direction of text.
func cleanText(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !strconv.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}
