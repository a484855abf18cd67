package guestlink

import (
	"context"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxProbe bounds, in bytes, the output that is read from one of the engine's
// own programs in a sandbox.
const maxProbe = 256 << 10

// captureTimeout bounds a program that capture runs.
const captureTimeout = 10 * time.Second

// Capture runs one of the engine's own programs, and returns the first maxProbe
// bytes of its standard output and its exit code.
func Capture(ctx context.Context, g Guest, argv []string) ([]byte, int, error) {
	ctx, cancel := context.WithTimeout(ctx, captureTimeout)
	defer cancel()
	no := false
	stream, err := g.Start(ctx, &guestapi.StartRequest{
		Process: guestapi.ProcessConfig{Cmd: argv[0], Args: argv[1:], Cwd: "/", Envs: interpreter.PackageEnv()},
		Stdin:   &no,
	}, guestapi.StartOptions{User: sandbox.User, Timeout: captureTimeout})
	if err != nil {
		return nil, 0, err
	}
	defer stream.Close()
	var out []byte
	for {
		ev, err := stream.Next()
		switch {
		case err != nil:
			return nil, 0, err
		case ev.Data != nil:
			out = append(out, ev.Data.Stdout[:min(len(ev.Data.Stdout), maxProbe-len(out))]...)
		case ev.End != nil && ev.End.ExitCode != nil:
			return out, ev.End.Code(), nil
		case ev.End != nil:
			return out, verdict.ExitSignal, nil
		}
	}
}

// Script runs a script of the shell in the working directory of the box, as
// root, and returns its output.
func Script(ctx context.Context, g Guest, timeout time.Duration, script string, args ...string) (io.ReadCloser, error) {
	no := false
	stream, err := g.Start(ctx, &guestapi.StartRequest{
		Process: guestapi.ProcessConfig{
			Cmd: "/bin/sh", Args: append([]string{"-c", script, "sh"}, args...), Envs: map[string]string{"LC_ALL": "C"},
		},
		Stdin: &no,
	}, guestapi.StartOptions{User: sandbox.Root, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	return &output{stream: stream}, nil
}

// An output reads the standard output of a program. It ends with io.EOF only if
// the program succeeds.
type output struct {
	stream Events
	data   []byte
	said   []byte
	err    error
}

func (o *output) Read(p []byte) (int, error) {
	for len(o.data) == 0 {
		if o.err != nil {
			return 0, o.err
		}
		ev, err := o.stream.Next()
		switch {
		case err != nil:
			o.err = sandbox.Errorf(sandbox.Unavailable, "the stream from the sandbox broke: %w", err)
		case ev.Data != nil:
			o.data = ev.Data.Stdout
			o.said = append(o.said, ev.Data.Stderr[:min(len(ev.Data.Stderr), maxProbe-len(o.said))]...)
		case ev.End != nil && ev.End.Status == guestapi.EndOK:
			o.err = io.EOF
		case ev.End != nil:
			said := strings.Join(strings.Fields(strings.ToValidUTF8(string(o.said), "\uFFFD")), " ")
			for len(said) > 300 || !utf8.ValidString(said) {
				said = said[:min(len(said)-1, 300)]
			}
			o.err = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "find or tar in the sandbox failed: %s: %s%s", ev.End.Text, said, ev.End.Cause),
				"use an image with GNU find, xargs and tar, and room on its disk")
		}
	}
	n := copy(p, o.data)
	o.data = o.data[n:]
	return n, nil
}

func (o *output) Close() error { return o.stream.Close() }
