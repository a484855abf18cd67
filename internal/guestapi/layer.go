package guestapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PathLayer serves the root file system as a whole, for the builder of images.
// POST marks its state. GET answers with the changes since the mark, as a layer
// in OCI's form. PUT unpacks an archive into it. All need root. The path is
// ours, beyond E2B's protocol.
const PathLayer = "/layer"

// UnpackOptions are the target of an archive.
type UnpackOptions struct {
	// Path is the directory into which the archive is unpacked. It is made with
	// its parents if necessary.
	Path string
	// File is set if the archive has a single file, which becomes Path itself.
	// If Path is a directory, the file goes into it.
	File bool
	// Owner is the owner of the files: a name or a number, or user:group. If it
	// is empty, root owns them.
	Owner string
}

// MarkLayer makes the guest record the state of the root file system.
func (c *Client) MarkLayer(ctx context.Context) error {
	resp, err := c.layer(ctx, "mark layer", http.MethodPost, PathLayer, nil)
	if err == nil {
		closeBody(resp)
	}
	return err
}

// Layer returns the changes since MarkLayer as an uncompressed tar archive. The
// caller closes it. The stream may break: the archive is complete only if it has
// its end marker.
func (c *Client) Layer(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.layer(ctx, "read layer", http.MethodGet, PathLayer, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Unpack unpacks an uncompressed tar archive. Existing directories stay as they
// are; existing files are replaced.
func (c *Client) Unpack(ctx context.Context, r io.Reader, opts UnpackOptions) error {
	q := url.Values{"path": {opts.Path}, "owner": {opts.Owner}}
	if opts.File {
		q.Set("file", "true")
	}
	return c.unpack(ctx, "unpack archive", r, q)
}

func (c *Client) unpack(ctx context.Context, op string, r io.Reader, q url.Values) error {
	src := &source{r: r}
	resp, err := c.layer(ctx, op, http.MethodPut, PathLayer+"?"+q.Encode(), src)
	if cause := src.failure(); cause != nil {
		err = fmt.Errorf("%s: read source: %w", op, cause)
	}
	if resp != nil {
		closeBody(resp)
	}
	return err
}

func (c *Client) layer(ctx context.Context, op, method, target string, body io.Reader) (*http.Response, error) {
	req, err := newRequest(ctx, method, target, body, sandbox.Root)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "%s: %w", op, err)
	}
	resp, err := c.do(op, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer closeBody(resp)
		return nil, answered(ctx, op, resp)
	}
	return resp, nil
}

// PathPack answers a POST with an archive of files of the root file system. It needs
// root. The path is ours, beyond E2B's protocol.
const PathPack = "/pack"

// MaxPackOrder bounds a PackOrder in its JSON form, in bytes.
const MaxPackOrder = 64 << 20

// A PackOrder selects files by absolute paths.
type PackOrder struct {
	// Trees are directories with all that they contain, except what is mounted in them.
	Trees []string `json:"trees,omitempty"`
	// Files are single files, and directories without their contents. Missing ones are
	// left out.
	Files []string `json:"files,omitempty"`
	// Gone are files that [Client.Restore] removes.
	Gone []string `json:"gone,omitempty"`
}

// Pack returns files as an uncompressed tar archive in the form of a layer. The caller
// closes it. Reading fails if the guest cannot complete the archive, as when a file
// becomes shorter meanwhile. The archive has no sockets, devices and extended attributes.
func (c *Client) Pack(ctx context.Context, order PackOrder) (io.ReadCloser, error) {
	const op = "pack files"
	text, err := json.Marshal(order)
	if err == nil && len(text) > MaxPackOrder {
		err = sandbox.Errorf(sandbox.Exhausted, "%d files are too many", len(order.Files)+len(order.Gone))
	}
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	resp, err := c.layer(ctx, op, http.MethodPost, PathPack, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// PathPackChanged answers a POST with an archive of the files that changed since the guest
// started. It needs root. The path is ours, beyond E2B's protocol.
const PathPackChanged = "/pack/changed"

// PackChanged is [Client.Pack] for all files of the root file system that changed since the
// guest started, except those below /run. Restore then also removes files from directories
// that changed, as programs did. The root file system must be an overlay. The error is of
// kind Unsupported if the guest is of a build that cannot do this.
func (c *Client) PackChanged(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.layer(ctx, "pack changed files", http.MethodPost, PathPackChanged, nil)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the sandbox was made by an earlier build of Glovebox, whose guest does not tell which files changed"),
			"keep its memory, or make the sandbox again")
	}
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Restore unpacks an archive of [Client.Pack]. Files have the owners, permissions and
// times that they had, and replace others of the same name.
func (c *Client) Restore(ctx context.Context, r io.Reader) error {
	return c.unpack(ctx, "restore files", r, url.Values{"path": {"/"}, "restore": {"true"}})
}
