package contexts

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

const (
	// maxStdin bounds the input that a run has not asked for yet.
	maxStdin = 1 << 20
	// maxShellInput bounds how long a write of input waits for a shell.
	maxShellInput = 10 * time.Second
)

// input takes input for a run.
func (x *run) input(in *guestapi.InputRequest) error {
	if !x.req.Stdin {
		return rpc.Errorf(guestapi.CodeAborted, "the run takes no input")
	}
	if x.context.program.Shell {
		return x.shellInput(in)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stdin.eof {
		return rpc.Errorf(guestapi.CodeAborted, "the run's input has ended")
	}
	if len(x.stdin.text)+len(in.Text) > maxStdin {
		return rpc.Errorf(guestapi.CodeResourceExhausted, "the run has %d bytes of input that it did not ask for", len(x.stdin.text))
	}
	x.stdin.text = append(x.stdin.text, in.Text...)
	x.stdin.eof = in.EOF
	x.answerLocked()
	return nil
}

// shellInput writes to the pipe from which a shell's programs read.
func (x *run) shellInput(in *guestapi.InputRequest) error {
	x.interpreter.stdin.SetWriteDeadline(time.Now().Add(maxShellInput))
	if _, err := x.interpreter.stdin.WriteString(in.Text); err != nil {
		if isClosed(err) {
			return rpc.Errorf(guestapi.CodeAborted, "the run's input has ended")
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return rpc.Errorf(guestapi.CodeResourceExhausted, "the run does not read its input")
		}
		return rpc.Errorf(guestapi.CodeInternal, "write input: %v", err)
	}
	if in.EOF {
		x.interpreter.stdin.Close()
	}
	return nil
}

// answerLocked sends a line to a kernel that waits for input, if there is one.
// The caller holds x.mu.
func (x *run) answerLocked() {
	if !x.stdin.waiting {
		return
	}
	i := bytes.IndexByte(x.stdin.text, '\n')
	eof := false
	var line string
	switch {
	case i >= 0:
		line, x.stdin.text = string(x.stdin.text[:i+1]), x.stdin.text[i+1:]
	case x.stdin.eof:
		line, x.stdin.text = string(x.stdin.text), nil
		eof = line == ""
	default:
		return
	}
	x.stdin.waiting = false
	b := x.context.program.Input(x.id, strings.ToValidUTF8(line, "\uFFFD"), eof)
	go func() { _ = x.interpreter.request(b) }()
}

// isClosed reports whether err comes from a closed file.
func isClosed(err error) bool { return errors.Is(err, os.ErrClosed) }
