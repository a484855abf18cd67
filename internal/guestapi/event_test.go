package guestapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDataEnvelope(t *testing.T) {
	for _, s := range []Stream{Stdout, Stderr, Terminal} {
		for _, p := range []string{"a", "ab", "abc", "\x00\xff\r\n\"\\", string(bytes.Repeat([]byte{0xfe}, 200_000))} {
			flags, msg, err := ReadEnvelope(bytes.NewReader(AppendDataEnvelope([]byte{}, s, []byte(p))), nil, MaxStreamMessage)
			if err != nil || flags != 0 {
				t.Fatal(flags, err)
			}
			ev, err := DecodeEvent(msg)
			if err != nil {
				t.Fatal(err)
			}
			want := map[Stream]*DataEvent{Stdout: {Stdout: []byte(p)}, Stderr: {Stderr: []byte(p)}, Terminal: {PTY: []byte(p)}}[s]
			if diff := cmp.Diff(&ProcessEvent{Data: want}, ev); diff != "" {
				t.Errorf("%s (-want +got):\n%.500s", s, diff)
			}
			// It is what encoding/json would have written.
			plain, err := json.Marshal(EventMessage{Event: ProcessEvent{Data: want}})
			if err != nil || !bytes.Equal(plain, msg) {
				t.Errorf("message is %.100s, want %.100s, %v", msg, plain, err)
			}
		}
	}
}

// FuzzDecodeEvent checks that what a guest sends cannot crash the host, and
// that the quick way of decoding agrees with encoding/json.
func FuzzDecodeEvent(f *testing.F) {
	for _, s := range []string{
		`{"event":{"data":{"stdout":"QUI="}}}`, `{"event":{"data":{"stdout":"QU\nI="}}}`, `{"event":{"data":{"stdout":"QUI=","stderr":"QQ=="}}}`,
		`{"event":{"data":{"pty":""}}}`, `{"event":{"data":{"x":"QQ=="}}}`, `{"event":{"end":{"exitCode":1,"detail":{"signal":9}}}}`,
		`{"event":{"start":{"pid":1}}}`, `{"event":{"data":{"stdout":"QQ==`, `{"event":null}`, `[]`, ``,
		`{"event":{"data":{"stdout":"Q"}}}`, `{"event":{"data":{"`, `{"event":{"data":{""}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		quick := decodeData(msg)
		if quick == nil {
			DecodeEvent(msg)
			return
		}
		var m EventMessage
		if err := json.Unmarshal(msg, &m); err != nil {
			t.Fatalf("%q was accepted: %v", msg, err)
		}
		if diff := cmp.Diff(m.Event, ProcessEvent{Data: quick}); diff != "" {
			t.Fatalf("%q (-json +quick):\n%s", msg, diff)
		}
	})
}

// FuzzReadEnvelope checks that a stream of a guest's bytes ends in messages
// within the bound and then an error.
func FuzzReadEnvelope(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x02{}\x02\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1000
		r := bytes.NewReader(b)
		var buf []byte
		for {
			before := r.Len()
			_, msg, err := ReadEnvelope(r, buf, limit)
			if err != nil {
				if errors.Is(err, io.EOF) && before != 0 {
					t.Fatal("a cut message reads as the end")
				}
				return
			}
			if len(msg) > limit || before-r.Len() != envelopeHeader+len(msg) {
				t.Fatalf("message of %d bytes from %d", len(msg), before-r.Len())
			}
			buf = msg[:0]
		}
	})
}

func BenchmarkDataEvent(b *testing.B) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	var env []byte
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		env = AppendDataEnvelope(env[:0], Stdout, data)
		if _, err := DecodeEvent(env[envelopeHeader:]); err != nil {
			b.Fatal(err)
		}
	}
}
