package sudo

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A request asks for a program. It follows the message that passes descriptors.
type request struct {
	// User and Group name the account, as a name, or "#" and a number.
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
	// Args is the command with its arguments. With Login or Shell, it may be empty.
	Args texts `json:"args,omitempty"`
	// Login has the user's shell run the command as a login shell, and Shell as the
	// caller's shell does.
	Login bool `json:"login,omitempty"`
	Shell bool `json:"shell,omitempty"`
	// Env is the caller's environment. KeepAll keeps all of it, Keep the variables
	// with these names, and Set are further variables.
	Env     texts  `json:"env,omitempty"`
	KeepAll bool   `json:"keep_all,omitempty"`
	Keep    texts  `json:"keep,omitempty"`
	Set     texts  `json:"set,omitempty"`
	SetHome bool   `json:"set_home,omitempty"`
	Cwd     []byte `json:"cwd,omitempty"`
	// Terminal is the number of the stream that becomes the program's terminal,
	// or -1.
	Terminal int `json:"terminal"`
	// List asks for no program, but for the rules.
	List bool `json:"list,omitempty"`
}

// maxTexts bounds the number of strings in one list of a request.
const maxTexts = 1 << 16

// texts are strings of any bytes but NUL. JSON would change what is not UTF-8.
type texts []string

// MarshalJSON implements [json.Marshaler].
func (t texts) MarshalJSON() ([]byte, error) {
	var b []byte
	for _, s := range t {
		b = append(append(b, s...), 0)
	}
	return json.Marshal(b)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *texts) UnmarshalJSON(data []byte) error {
	var b []byte
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}
	if bytes.Count(b, []byte{0}) > maxTexts {
		return errors.New("too many texts")
	}
	*t = nil
	for s := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		if len(b) > 0 {
			*t = append(*t, string(s))
		}
	}
	return nil
}

// An answer is the guest's message. The first is an Error, a Text or a Started; the
// last, after Started, has how the program ended.
type answer struct {
	Error   string `json:"error,omitempty"`
	Text    string `json:"text,omitempty"`
	Started bool   `json:"started,omitempty"`
	Status  int    `json:"status,omitempty"` // exit status
	Signal  int    `json:"signal,omitempty"` // that ended the program
}

const (
	// maxRequest bounds a request, in bytes. Linux bounds the arguments and the
	// environment of a program to a similar size.
	maxRequest = 1 << 20
	maxAnswer  = 64 << 10
)

// send writes a message after its size.
func send(w io.Writer, v any, most int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > most {
		return fmt.Errorf("the command, its arguments and the environment have %d bytes, more than %d", len(body), most)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// receive reads a message of send.
func receive(r io.Reader, v any, most uint32) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > most {
		return fmt.Errorf("a message of %d bytes is larger than %d", n, most)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}
