package guestapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PathLayer is about the root file system as a whole, for whoever builds images.
// A POST has the guest remember how it is. A GET then answers with what changed
// since, a layer in OCI's form, and a PUT unpacks an archive into it, both as
// root. It is ours, beyond E2B's protocol.
const PathLayer = "/layer"

// UnpackOptions say where an archive goes.
type UnpackOptions struct {
	// Path is the directory that the names in the archive are below. It is made
	// with its parents.
	Path string
	// File says that the archive has one file, which is to be at Path itself,
	// unless that is a directory.
	File bool
	// Owner is whom the files belong to: a name or a number, or two with a colon
	// between, the second being the group. It is root if it is empty.
	Owner string
}

// MarkLayer has the guest remember the root file system as it is.
func (c *Client) MarkLayer(ctx context.Context) error {
	resp, err := c.layer(ctx, "mark layer", http.MethodPost, nil, nil)
	if err == nil {
		closeBody(resp)
	}
	return err
}

// Layer returns what changed since MarkLayer, an uncompressed archive. The
// caller closes it. What is read of it may break off: the archive is whole only
// if it has its end.
func (c *Client) Layer(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.layer(ctx, "read layer", http.MethodGet, nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Unpack unpacks an uncompressed tar archive. Directories that are there stay as
// they are; files are replaced.
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
