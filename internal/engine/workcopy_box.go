package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// copyDir is the directory in a box for files that its programs are to read.
const copyDir = "/tmp"

// The scripts that copy. Their working directory is the workspace.
const (
	findListing = `find . -ignore_readdir_race -mindepth 1 -printf '` + workspace.ListingFormat + `'`

	// A file that changes meanwhile makes the exit status 1. Its time is then
	// later than in the listing before, so it is copied again.
	packScript = `trap 'rm -f -- "$1"' EXIT
tar --create --file=- --format=gnu --sparse --no-recursion --null --files-from="$1"; [ $? -le 1 ]`

	unpackScript = `trap 'rm -f -- "$1" "$2"' EXIT
xargs -0 -r rm -df -- <"$2" 2>/dev/null
tar --extract --preserve-permissions --no-overwrite-dir --file="$1" >&2 || exit
` + findListing
)

// list returns the state of the workspace in the box.
func (c *workcopy) list(ctx context.Context) (*workspace.Snapshot, error) {
	out, err := c.start(ctx, findListing)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s, err := workspace.ReadListing(out)
	if errors.Is(err, sandbox.Exhausted) {
		return nil, c.b.mount.tooMuch(err)
	}
	return s, err
}

// pack returns an archive of the named files in the box. The caller must close
// it.
func (c *workcopy) pack(ctx context.Context, names []string, there *workspace.Snapshot) (io.ReadCloser, error) {
	file := c.temp() + ".names"
	list := "./" + strings.Join(names, "\x00./") + "\x00"
	if _, err := c.b.guest.Write(ctx, file, strings.NewReader(list), guestapi.WriteOptions{User: sandbox.Root}); err != nil {
		return nil, err
	}
	out, err := c.start(ctx, packScript, file)
	if err != nil {
		return nil, err
	}
	// Files may grow while they are read, but the box decides how much it
	// sends. The quota is checked later, when the files are unpacked here.
	most := 4*there.Usage.Bytes + archiveEach*int64(len(names)) + archiveSlack
	return &boundedOutput{out, most}, nil
}

// temp returns a name prefix for files that are sent to the box's programs.
func (c *workcopy) temp() string { return copyDir + "/.glovebox-" + c.b.id + "-" + rand.Text() }

// start runs a script in the box.
func (c *workcopy) start(ctx context.Context, script string, args ...string) (*output, error) {
	no := false
	stream, err := c.b.guest.Start(ctx, &guestapi.StartRequest{
		Process: guestapi.ProcessConfig{
			Cmd: "/bin/sh", Args: append([]string{"-c", script, "sh"}, args...), Envs: map[string]string{"LC_ALL": "C"},
		},
		Stdin: &no,
	}, guestapi.StartOptions{User: sandbox.Root, Timeout: copyTimeout})
	if err != nil {
		return nil, err
	}
	return &output{stream: stream}, nil
}

// An output reads the standard output of a program. It ends with io.EOF only if
// the program succeeds.
type output struct {
	stream events
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
		case ev.End != nil && ev.End.Exited && ev.End.ExitCode == 0:
			o.err = io.EOF
		case ev.End != nil:
			said := strings.Join(strings.Fields(strings.ToValidUTF8(string(o.said), "\uFFFD")), " ")
			for len(said) > 300 || !utf8.ValidString(said) {
				said = said[:min(len(said)-1, 300)]
			}
			o.err = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "find or tar in the sandbox failed: %s: %s%s", ev.End.Status, said, ev.End.Error),
				"use an image with GNU find, xargs and tar, and room on its disk")
		}
	}
	n := copy(p, o.data)
	o.data = o.data[n:]
	return n, nil
}

func (o *output) Close() error { return o.stream.Close() }

// A boundedOutput fails when there are more than left bytes.
type boundedOutput struct {
	*output
	left int64
}

func (o *boundedOutput) Read(p []byte) (int, error) {
	n, err := o.output.Read(p)
	if o.left -= int64(n); o.left < 0 {
		return 0, sandbox.Errorf(sandbox.Exhausted, "the sandbox sends more than it has")
	}
	return n, err
}
