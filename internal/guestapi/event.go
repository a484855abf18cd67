package guestapi

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Output is most of the traffic, so its events are encoded and decoded by hand.
// The package encoding/json would scan every byte twice more.
const (
	dataPrefix = `{"event":{"data":{"`
	dataSuffix = `"}}}`
)

// A Stream names one of a process's outputs, as its key in a [DataEvent].
type Stream string

// The streams.
const (
	Stdout   Stream = "stdout"
	Stderr   Stream = "stderr"
	Terminal Stream = "pty"
)

// AppendDataEnvelope appends an envelope with an EventMessage, whose data is p
// on stream s.
func AppendDataEnvelope(dst []byte, s Stream, p []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0)
	dst = append(dst, dataPrefix...)
	dst = append(dst, s...)
	dst = append(dst, `":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, p)
	dst = append(dst, dataSuffix...)
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-envelopeHeader))
	return dst
}

// DecodeEvent decodes a message of a process stream. It returns nil for an event
// of an unknown kind, and for data without bytes. The event shares no memory
// with msg.
func DecodeEvent(msg []byte) (*ProcessEvent, error) {
	if data := decodeData(msg); data != nil {
		return &ProcessEvent{Data: data}, nil
	}
	var m EventMessage
	if err := json.Unmarshal(msg, &m); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	ev := &m.Event
	n := 0
	if ev.Start != nil {
		n++
	}
	if ev.Data != nil {
		n++
	}
	if ev.End != nil {
		n++
	}
	if ev.Keepalive != nil {
		n++
	}
	if n == 0 {
		return nil, nil
	}
	if n > 1 {
		return nil, errors.New("decode event: several events in one message")
	}
	if d := ev.Data; d != nil && len(d.Stdout)+len(d.Stderr)+len(d.PTY) == 0 {
		return nil, nil
	}
	return ev, nil
}

// decodeData decodes msg if it has exactly the form that AppendDataEnvelope
// writes. Otherwise it returns nil.
func decodeData(msg []byte) *DataEvent {
	rest, ok := bytes.CutPrefix(msg, []byte(dataPrefix))
	if !ok {
		return nil
	}
	rest, ok = bytes.CutSuffix(rest, []byte(dataSuffix))
	if !ok {
		return nil
	}
	key, text, ok := bytes.Cut(rest, []byte(`":"`))
	if !ok {
		return nil
	}
	// The decoder would skip line breaks, which are not allowed in a JSON
	// string.
	if len(text) == 0 || bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 {
		return nil
	}
	p := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(p, text)
	if err != nil || n == 0 {
		return nil
	}
	p = p[:n]
	switch Stream(key) {
	case Stdout:
		return &DataEvent{Stdout: p}
	case Stderr:
		return &DataEvent{Stderr: p}
	case Terminal:
		return &DataEvent{PTY: p}
	}
	return nil
}
