package rpc

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A Stream writes a server stream's messages.
type Stream struct {
	w     io.Writer
	rc    *http.ResponseController
	ended bool
}

// Raw writes a whole envelope and flushes it.
func (s *Stream) Raw(envelope []byte) error {
	if _, err := s.w.Write(envelope); err != nil {
		return err
	}
	return s.rc.Flush()
}

// Send sends a message.
func (s *Stream) Send(v any) error { return s.envelope(0, v) }

func (s *Stream) envelope(flags byte, v any) error {
	b, err := appendMessage(nil, flags, v)
	if err != nil {
		return err
	}
	return s.Raw(b)
}

func appendMessage(b []byte, flags byte, v any) ([]byte, error) {
	msg, err := json.Marshal(v)
	if err != nil {
		return nil, Errorf(guestapi.CodeInternal, "encode message: %v", err)
	}
	return guestapi.AppendEnvelope(b, flags, msg), nil
}

// Last sends the last message and the end of the stream in one write.
func (s *Stream) Last(v any) error {
	b, err := appendMessage(nil, 0, v)
	if err != nil {
		return err
	}
	if b, err = appendMessage(b, guestapi.FlagEndStream, &guestapi.EndStream{}); err != nil {
		return err
	}
	s.ended = true
	return s.Raw(b)
}

// end ends the stream, unless Last did. An error is ignored: the reader may be
// gone.
func (s *Stream) end(err error) {
	if s.ended {
		return
	}
	var last guestapi.EndStream
	if err != nil {
		last.Error = Wire(err)
	}
	_ = s.envelope(guestapi.FlagEndStream, &last)
}
