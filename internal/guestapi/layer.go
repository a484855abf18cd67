package guestapi

import (
	"context"
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
	resp, err := c.layer(ctx, "mark layer", http.MethodPost, nil, nil)
	if err == nil {
		closeBody(resp)
	}
	return err
}

// Layer returns the changes since MarkLayer as an uncompressed tar archive. The
// caller closes it. The stream may break: the archive is complete only if it has
// its end marker.
func (c *Client) Layer(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.layer(ctx, "read layer", http.MethodGet, nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Unpack unpacks an uncompressed tar archive. Existing directories stay as they
// are; existing files are replaced.
func (c *Client) Unpack(ctx context.Context, r io.Reader, opts UnpackOptions) error {
	const op = "unpack archive"
	q := url.Values{"path": {opts.Path}, "owner": {opts.Owner}}
	if opts.File {
		q.Set("file", "true")
	}
	src := &source{r: r}
	resp, err := c.layer(ctx, op, http.MethodPut, q, src)
	if cause := src.failure(); cause != nil {
		err = fmt.Errorf("%s: read source: %w", op, cause)
	}
	if resp != nil {
		closeBody(resp)
	}
	return err
}

func (c *Client) layer(ctx context.Context, op, method string, q url.Values, body io.Reader) (*http.Response, error) {
	req, err := newRequest(ctx, method, PathLayer+"?"+q.Encode(), body, sandbox.Root)
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
