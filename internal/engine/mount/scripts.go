package mount

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// copyDir is the directory in a box for files that its programs are to read.
const copyDir = "/tmp"

// The scripts that copy. Their working directory is the workspace.
const (
	findListing = `find . -ignore_readdir_race -mindepth 1 -printf '` + workspace.ListingFormat + `'`

	clearScript = `find . -ignore_readdir_race -mindepth 1 -delete`

	// A file that changes meanwhile makes the exit status 1. Its time is then
	// later than in the listing before, so it is copied again.
	packScript = `trap 'rm -f -- "$1"' EXIT
tar --create --file=- --format=gnu --sparse --no-recursion --null --files-from="$1"; [ $? -le 1 ]`

	unpackScript = `trap 'rm -f -- "$1" "$2"' EXIT
xargs -0 -r rm -df -- <"$2" 2>/dev/null
tar --extract --preserve-permissions --no-overwrite-dir --file="$1" >&2 || exit
` + findListing
)

const (
	// copyTimeout bounds a copy with all its tries.
	copyTimeout = 10 * time.Minute
	// archiveSlack is how many bytes an archive may have besides the files, and
	// archiveEach how many more for each file.
	archiveSlack = 64 << 20
	archiveEach  = 16 << 10
)

// list returns the state of the workspace in the box. tooMuch explains the error
// for too many files.
func list(ctx context.Context, b Sandbox, tooMuch func(error) error) (*workspace.Snapshot, error) {
	out, err := b.Script(ctx, copyTimeout, findListing)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s, err := workspace.ReadListing(out)
	return s, tooMuch(err)
}

// pack returns an archive of the named files in the box, which have that many
// bytes. The caller must close it.
func pack(ctx context.Context, b Sandbox, names []string, bytes int64) (io.ReadCloser, error) {
	file := temp(b) + ".names"
	list := "./" + strings.Join(names, "\x00./") + "\x00"
	if err := b.PutTemp(ctx, file, strings.NewReader(list)); err != nil {
		return nil, err
	}
	out, err := b.Script(ctx, copyTimeout, packScript, file)
	if err != nil {
		return nil, err
	}
	// Files may grow while they are read, but the box decides how much it
	// sends. The quota is checked later, when the files are unpacked here.
	most := 4*bytes + archiveEach*int64(len(names)) + archiveSlack
	return &boundedOutput{out, most}, nil
}

// temp returns a name prefix for files that are sent to the box's programs.
func temp(b Sandbox) string { return copyDir + "/.glovebox-" + b.ID() + "-" + rand.Text() }

// A boundedOutput fails when there are more than left bytes.
type boundedOutput struct {
	io.ReadCloser
	left int64
}

func (o *boundedOutput) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	if o.left -= int64(n); o.left < 0 {
		return 0, sandbox.Errorf(sandbox.Exhausted, "the sandbox sent more files than it announced")
	}
	return n, err
}
